// The C face of llama.cpp's chat templates: no C++ exception leaves these functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Bytes that need no NUL at their end, and may hold some.
struct moeslice_text {
    const char * data;
    size_t       bytes;
};

// A chat template that was read and analysed.
struct moeslice_chat_template;
// A conversation as text, in parts.
struct moeslice_rendered;

// NULL when the template cannot be read.
struct moeslice_chat_template * moeslice_chat_template_new(struct moeslice_text source, struct moeslice_text bos, struct moeslice_text eos, char * error, size_t error_size);
void moeslice_chat_template_free(struct moeslice_chat_template * chat_template);

// Renders messages and tools, both JSON in the form of the OpenAI API; `tools` may be empty. With `answer`, the beginning of an answer
// follows. NULL when the template does not render them.
struct moeslice_rendered * moeslice_chat_render(const struct moeslice_chat_template * chat_template, struct moeslice_text messages, struct moeslice_text tools, bool answer, char * error, size_t error_size);
void moeslice_rendered_free(struct moeslice_rendered * rendered);
size_t moeslice_rendered_parts(const struct moeslice_rendered * rendered);
struct moeslice_text moeslice_rendered_text(const struct moeslice_rendered * rendered, size_t part);
// Whether a part comes from the conversation, and not from the template.
bool moeslice_rendered_is_input(const struct moeslice_rendered * rendered, size_t part);

#ifdef __cplusplus
}
#endif
