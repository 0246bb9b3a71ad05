#include "shim.h"

#include "guarded.h"
#include "fit.h"
#include "ggml-cpu.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-model.h"
#include "log.h"

#include <memory>
#include <stdexcept>
#include <vector>

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

void moeslice_keep_states(llama_context * context) {
    llama_set_embeddings_nextn(context, true, /*masked=*/false);
}

// Puts what `get` gives into `row`.
template <typename Get>
static int32_t guarded_row(const float ** row, char * error, size_t error_size, Get get) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        *row = get();
        return 0;
    });
}

int32_t moeslice_state(llama_context * context, int32_t index, const float ** row, char * error, size_t error_size) {
    return guarded_row(row, error, error_size, [&] { return llama_get_embeddings_nextn_ith(context, index); });
}

int32_t moeslice_logits(llama_context * context, int32_t index, const float ** row, char * error, size_t error_size) {
    return guarded_row(row, error, error_size, [&] { return llama_get_logits_ith(context, index); });
}

int32_t moeslice_embedding(llama_context * context, int32_t index, const float ** row, char * error, size_t error_size) {
    return guarded_row(row, error, error_size, [&] { return llama_get_embeddings_seq(context, index); });
}

int32_t moeslice_memory_clear(llama_context * context, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        if (llama_memory_t memory = llama_get_memory(context)) {
            llama_memory_clear(memory, /*data=*/true);
        }
        return 0;
    });
}

int32_t moeslice_tensor_get(const ggml_tensor * tensor, void * data, size_t offset, size_t size, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        ggml_backend_tensor_get(tensor, data, offset, size);
        return 0;
    });
}

int32_t moeslice_tensor_get_2d(const ggml_tensor * tensor, void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        ggml_backend_tensor_get_2d(tensor, data, offset, size, n_copies, stride_tensor, stride_data);
        return 0;
    });
}

int32_t moeslice_tensor_set(ggml_tensor * tensor, const void * data, size_t offset, size_t size, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        ggml_backend_tensor_set(tensor, data, offset, size);
        return 0;
    });
}

int32_t moeslice_softmax(float * rows, int64_t width, int64_t n, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        const size_t memory = 2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false);
        std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({ memory, nullptr, true }), ggml_free);
        ggml_tensor * in = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, width, n);
        in->data         = rows;
        ggml_cgraph * graph = ggml_new_graph_custom(context.get(), 8, false);
        ggml_build_forward_expand(graph, ggml_soft_max_inplace(context.get(), in));
        ggml_cplan           plan = ggml_graph_plan(graph, 1, nullptr);
        std::vector<uint8_t> work(plan.work_size);
        plan.work_data = work.data();
        if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("the softmax was not computed");
        }
        return 0;
    });
}

int32_t moeslice_decode_states(llama_context * context, const llama_token * tokens, const float * states, size_t n_embd, int32_t n_tokens, int32_t first_position, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        std::unique_ptr<llama_batch_ext, decltype(&llama_batch_ext_free)> batch(llama_batch_ext_init(context), llama_batch_ext_free);
        for (int32_t i = 0; i < n_tokens; ++i) {
            const int32_t   index    = llama_batch_ext_add_token(batch.get(), 0, tokens[i]);
            const llama_pos position = first_position + i;
            const bool      added    = index >= 0
                && llama_batch_ext_set_embd_state(batch.get(), index, { states + size_t(i) * n_embd, 1, n_embd })
                && llama_batch_ext_set_output_logits(batch.get(), index, true)
                && llama_batch_ext_set_pos(batch.get(), index, &position);
            if (!added) {
                throw std::runtime_error("a token and its state do not fit into the batch");
            }
        }
        return llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch.get());
    });
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

bool moeslice_model_is_causal(const llama_model * model) {
    return model->hparams.causal_attn;
}

bool moeslice_model_has_indexer(const llama_model * model) {
    return model->hparams.indexer_top_k > 0;
}

uint32_t moeslice_model_n_ctx_original(const llama_model * model) {
    return model->hparams.n_ctx_orig_yarn;
}

ggml_backend_dev_t moeslice_model_device(const llama_model * model, size_t index) {
    return index < size_t(llama_model_n_devices(model)) ? llama_model_get_device(model, int(index)) : nullptr;
}

int32_t moeslice_add_rpc_server(const char * endpoint, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        using add_server = ggml_backend_reg_t (*)(const char *);
        ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
        if (rpc == nullptr) {
            throw std::runtime_error("this llama.cpp is built without its RPC backend");
        }
        auto add = reinterpret_cast<add_server>(ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
        ggml_backend_reg_t server = add == nullptr ? nullptr : add(endpoint);
        if (server == nullptr) {
            return 0;
        }
        ggml_backend_register(server);
        return int32_t(ggml_backend_reg_dev_count(server));
    });
}

int32_t moeslice_fit(const char * path, llama_model_params * model, llama_context_params * context, float * tensor_split, llama_model_tensor_buft_override * overrides, size_t * margins, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        // What it logs besides goes to stderr by a thread of its own.
        common_log_pause(common_log_main());
        // A context of the size that was asked for is not made smaller.
        return int32_t(common_fit_params(path, model, context, tensor_split, overrides, margins, UINT32_MAX, nullptr, GGML_LOG_LEVEL_ERROR));
    });
}

int32_t moeslice_context_memory(llama_context * context, moeslice_memory * rows, size_t capacity, char * error, size_t error_size) {
    return guarded<int32_t>(MOESLICE_THREW, error, error_size, [&] {
        // What was asked of the context since it was made may change its graph.
        if (llama_get_model(context)->no_alloc()) {
            context->sched_reserve();
        }
        const auto all  = llama_get_memory_breakdown(context);
        size_t     next = 0;
        for (const auto & [type, bytes] : all) {
            if (next == capacity) {
                break;
            }
            ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
            const auto         kind   = device ? ggml_backend_dev_type(device) : GGML_BACKEND_DEVICE_TYPE_CPU;
            const bool         host   = ggml_backend_buft_is_host(type);
            const bool         gpu    = kind == GGML_BACKEND_DEVICE_TYPE_GPU || kind == GGML_BACKEND_DEVICE_TYPE_IGPU;
            rows[next++] = { gpu && !host ? device : nullptr, host, bytes.model, bytes.context, bytes.compute };
        }
        return int32_t(all.size());
    });
}

bool moeslice_model_maps(const llama_model * model) {
    for (int i = 0; i < llama_model_n_devices(model); ++i) {
        ggml_backend_dev_props props;
        ggml_backend_dev_get_props(llama_model_get_device(model, i), &props);
        if (!props.caps.mmap_support) {
            return false;
        }
    }
    return llama_supports_mmap();
}

const char * moeslice_architecture_name(size_t index) {
    static const std::vector<llm_arch> all = llama_arch_all();
    return index < all.size() ? llama_arch_name(all[index]) : nullptr;
}

bool moeslice_architecture_saves(size_t index) {
    static const std::vector<llm_arch> all = llama_arch_all();
    return index < all.size() && llama_arch_supports_save(all[index]);
}
