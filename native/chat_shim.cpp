#include "chat_shim.h"

#include "chat.h"
#include "guarded.h"
#include "jinja/lexer.h"
#include "log.h"

#include <memory>
#include <string>

struct moeslice_chat_template {
    common_chat_templates_ptr templates;
};

struct moeslice_rendered {
    common_chat_prompt prompt;
};

static std::string text(moeslice_text text) {
    return std::string(text.data, text.bytes);
}

moeslice_chat_template * moeslice_chat_template_new(moeslice_text source, moeslice_text bos, moeslice_text eos, char * error, size_t error_size) {
    return guarded<moeslice_chat_template *>(nullptr, error, error_size, [&] {
        // Its log goes to stderr by a thread of its own, and repeats what the exceptions say.
        common_log_set_verbosity_thold(-1);
        // What is wrong with a template gets lost below: the exception is copied as its base.
        jinja::lexer lexer;
        jinja::parse_from_tokens(lexer.tokenize(text(source)));
        auto chat_template = std::make_unique<moeslice_chat_template>();
        chat_template->templates = common_chat_templates_init(nullptr, text(source), text(bos), text(eos));
        return chat_template.release();
    });
}

void moeslice_chat_template_free(moeslice_chat_template * chat_template) {
    delete chat_template;
}

moeslice_rendered * moeslice_chat_render(const moeslice_chat_template * chat_template, moeslice_text messages, moeslice_text tools, bool answer, char * error, size_t error_size) {
    return guarded<moeslice_rendered *>(nullptr, error, error_size, [&] {
        common_chat_templates_inputs inputs;
        inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(text(messages)));
        if (tools.bytes != 0) {
            inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(text(tools)));
        }
        inputs.add_generation_prompt = answer;
        // The same day as fixed_clock.h, for the templates that take it from the context.
        inputs.now = std::chrono::system_clock::from_time_t(MOESLICE_CHAT_TIME);
        inputs.chat_template_kwargs["datetime"]    = "\"Jan 01 2026\"";
        inputs.chat_template_kwargs["date_string"] = "\"01 Jan 2026\"";
        auto rendered = std::make_unique<moeslice_rendered>();
        try {
            rendered->prompt = common_chat_templates_apply(chat_template->templates.get(), inputs).prompt;
        } catch (const std::invalid_argument & e) {
            // The answers of a template may be beyond its analysis, while its text is not.
            if (std::string(e.what()).find("Unable to generate parser") == std::string::npos) {
                throw;
            }
            inputs.force_pure_content = true;
            rendered->prompt = common_chat_templates_apply(chat_template->templates.get(), inputs).prompt;
        }
        return rendered.release();
    });
}

void moeslice_rendered_free(moeslice_rendered * rendered) {
    delete rendered;
}

size_t moeslice_rendered_parts(const moeslice_rendered * rendered) {
    return rendered->prompt.parts.size();
}

moeslice_text moeslice_rendered_text(const moeslice_rendered * rendered, size_t part) {
    const std::string & text = rendered->prompt.parts.at(part).text;
    return { text.data(), text.size() };
}

bool moeslice_rendered_is_input(const moeslice_rendered * rendered, size_t part) {
    return rendered->prompt.parts.at(part).is_input;
}
