// Renders conversations with llama.cpp's own common library, for comparisons: the template's file, BOS, EOS; one
// conversation a line on stdin, {"text": …} or {"refused": true} a line on stdout.
#include "chat.h"
#include "log.h"

#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>

// The template engine asks for the time; here it is always 1 January 2026. Run with TZ=UTC.
extern "C" time_t time(time_t * out) {
    const time_t now = 1767225600;
    if (out) {
        *out = now;
    }
    return now;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        std::cerr << "usage: render TEMPLATE BOS EOS < conversations.jsonl\n";
        return 2;
    }
    common_log_set_verbosity_thold(-1);
    std::ifstream     file(argv[1]);
    std::stringstream source;
    source << file.rdbuf();
    auto        templates = common_chat_templates_init(nullptr, source.str(), argv[2], argv[3]);
    std::string line;
    while (std::getline(std::cin, line)) {
        common_json result = common_json::object();
        common_chat_templates_inputs inputs;
        inputs.add_generation_prompt = false;
        inputs.chat_template_kwargs  = { { "datetime", "\"Jan 01 2026\"" }, { "date_string", "\"01 Jan 2026\"" } };
        try {
            const auto conversation = common_json::parse(line);
            inputs.messages = common_chat_msgs_parse_oaicompat(conversation.at("messages"));
            if (conversation.contains("tools")) {
                inputs.tools = common_chat_tools_parse_oaicompat(conversation.at("tools"));
            }
            try {
                result["text"] = common_chat_templates_apply(templates.get(), inputs).prompt.str();
            } catch (const std::invalid_argument &) {
                inputs.force_pure_content = true;
                result["text"] = common_chat_templates_apply(templates.get(), inputs).prompt.str();
            }
        } catch (const std::exception & e) {
            // Its text may show the template cut inside a character.
            std::cerr << e.what() << "\n";
            result["refused"] = true;
        }
        std::cout << result.dump() << "\n";
    }
}
