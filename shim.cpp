#include "shim.h"

#include "llama-ext.h"

#include <cstdio>
#include <exception>

// Runs `call`; an exception becomes its text in `error` and the value `thrown`.
template <typename Result, typename Call>
static Result guarded(Result thrown, char * error, size_t error_size, Call call) {
    try {
        return call();
    } catch (const std::exception & e) {
        std::snprintf(error, error_size, "%s", e.what());
    } catch (...) {
        std::snprintf(error, error_size, "an exception of unknown type");
    }
    return thrown;
}

llama_model * moeslice_model_load(const char ** paths, size_t n_paths, llama_model_params params, char * error, size_t error_size) {
    return guarded<llama_model *>(nullptr, error, error_size, [&] {
        return n_paths == 1 ? llama_model_load_from_file(paths[0], params) : llama_model_load_from_splits(paths, n_paths, params);
    });
}

llama_model * moeslice_model_from_metadata(gguf_context * metadata, llama_model_set_tensor_data_t fill, void * user_data, llama_model_params params, char * error, size_t error_size) {
    return guarded<llama_model *>(nullptr, error, error_size, [&] {
        return llama_model_init_from_user(metadata, fill, user_data, params);
    });
}

int32_t moeslice_model_save(const llama_model * model, const char * path, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        llama_model_save_to_file(model, path);
        return 0;
    });
}

llama_context * moeslice_context_new(llama_model * model, llama_context_params params, char * error, size_t error_size) {
    return guarded<llama_context *>(nullptr, error, error_size, [&] { return llama_init_from_model(model, params); });
}

int32_t moeslice_decode(llama_context * context, llama_batch batch, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] { return llama_decode(context, batch); });
}

int32_t moeslice_encode(llama_context * context, llama_batch batch, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] { return llama_encode(context, batch); });
}

int32_t moeslice_synchronize(llama_context * context, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        llama_synchronize(context);
        return 0;
    });
}

int32_t moeslice_tokenize(const llama_vocab * vocab, const char * text, int32_t text_bytes, llama_token * tokens, int32_t capacity, bool add_special, bool parse_special, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        return llama_tokenize(vocab, text, text_bytes, tokens, capacity, add_special, parse_special);
    });
}

const char * moeslice_architecture_name(size_t index) {
    static const std::vector<llm_arch> all = llama_arch_all();
    return index < all.size() ? llama_arch_name(all[index]) : nullptr;
}

bool moeslice_architecture_saves(size_t index) {
    static const std::vector<llm_arch> all = llama_arch_all();
    return index < all.size() && llama_arch_supports_save(all[index]);
}
