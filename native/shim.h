// The C face of the few llama.cpp calls that can throw: no C++ exception leaves this file's functions.
// Each takes a buffer for a message, which is filled (and ended with NUL) when something was thrown.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the calls that return an int32_t return after an exception; llama.cpp itself never returns it.
enum moeslice_status { MOESLICE_THREW = INT32_MIN };

struct llama_model * moeslice_model_load(const char ** paths, size_t n_paths, struct llama_model_params params, char * error, size_t error_size);
struct llama_model * moeslice_model_from_metadata(struct gguf_context * metadata, llama_model_set_tensor_data_t fill, void * user_data, struct llama_model_params params, char * error, size_t error_size);
int32_t moeslice_model_save(const struct llama_model * model, const char * path, char * error, size_t error_size);
struct llama_context * moeslice_context_new(struct llama_model * model, struct llama_context_params params, char * error, size_t error_size);
int32_t moeslice_decode(struct llama_context * context, struct llama_batch batch, char * error, size_t error_size);
int32_t moeslice_encode(struct llama_context * context, struct llama_batch batch, char * error, size_t error_size);
// Keeps the state of every token that the blocks of multi-token prediction continue from.
void moeslice_keep_states(struct llama_context * context);
// Each puts a row of floats that stays until the next batch into `row`, NULL when there is none: the state of the token
// at `index` of the last batch (llama_model_n_embd_out floats), its logits (one a token of the vocabulary), the pooled
// embedding of the sequence `index` (llama_model_n_embd_out floats).
int32_t moeslice_state(struct llama_context * context, int32_t index, const float ** row, char * error, size_t error_size);
int32_t moeslice_logits(struct llama_context * context, int32_t index, const float ** row, char * error, size_t error_size);
int32_t moeslice_embedding(struct llama_context * context, int32_t index, const float ** row, char * error, size_t error_size);
// Forgets all sequences; a context without memory has none.
int32_t moeslice_memory_clear(struct llama_context * context, char * error, size_t error_size);
// Runs `n_tokens` tokens of sequence 0, each from its state, through the block of a context of type MTP. Every token is an output.
int32_t moeslice_decode_states(struct llama_context * context, const llama_token * tokens, const float * states, size_t n_embd, int32_t n_tokens, int32_t first_position, char * error, size_t error_size);
int32_t moeslice_synchronize(struct llama_context * context, char * error, size_t error_size);
int32_t moeslice_tokenize(const struct llama_vocab * vocab, const char * text, int32_t text_bytes, llama_token * tokens, int32_t capacity, bool add_special, bool parse_special, char * error, size_t error_size);

// Access to the data of a tensor, as the functions of ggml-backend.h with these names have it.
int32_t moeslice_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size, char * error, size_t error_size);
int32_t moeslice_tensor_get_2d(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data, char * error, size_t error_size);
int32_t moeslice_tensor_set(struct ggml_tensor * tensor, const void * data, size_t offset, size_t size, char * error, size_t error_size);

// Replaces each of `n` rows of `width` numbers by its softmax, as llama.cpp's processor backend computes it.
int32_t moeslice_softmax(float * rows, int64_t width, int64_t n, char * error, size_t error_size);

// Whether each token attends only to those before it.
bool moeslice_model_is_causal(const struct llama_model * model);
// Whether an indexer chooses which cells of the keys and values a token attends to.
bool moeslice_model_has_indexer(const struct llama_model * model);
// Tokens of a sequence beyond which positions are computed in another way.
uint32_t moeslice_model_n_ctx_original(const struct llama_model * model);
// The device at `index` among those that hold layers of the model besides the processor; NULL past the last.
ggml_backend_dev_t moeslice_model_device(const struct llama_model * model, size_t index);

// Adds the devices of the RPC server at `endpoint` (host:port); gives their number. A server that is not there ends the process.
int32_t moeslice_add_rpc_server(const char * endpoint, char * error, size_t error_size);

// Lays the model at `path` out so that it fits the free memory of its devices, less `margins` (bytes, one a device): changes
// what of the parameters has llama.cpp's own value. `tensor_split` has room for llama_max_devices() numbers and `overrides`
// for llama_max_tensor_buft_overrides() entries, which the parameters point to afterwards. 0: it fits; 1: it does not; 2: it
// could not be measured.
int32_t moeslice_fit(const char * path, struct llama_model_params * model, struct llama_context_params * context, float * tensor_split, struct llama_model_tensor_buft_override * overrides, size_t * margins, char * error, size_t error_size);

// What a kind of memory has to hold for a context and its model.
struct moeslice_memory {
    ggml_backend_dev_t device;  // NULL where the processor computes
    bool               host;    // whether the processor reaches it as any other memory
    size_t             weights; // bytes
    size_t             context; // of keys and values, and of the states of sequences
    size_t             compute; // to compute in
};

// Fills `rows`, one a kind of memory, as llama.cpp holds it or, for a model that holds nothing, would; returns how many there
// are, which may be more than `capacity`. Buffers of outputs are not among it.
int32_t moeslice_context_memory(struct llama_context * context, struct moeslice_memory * rows, size_t capacity, char * error, size_t error_size);
// Whether llama.cpp maps the weights of the model where that is left to it.
bool moeslice_model_maps(const struct llama_model * model);

// The architectures that this llama.cpp knows, by index; NULL past the last.
const char * moeslice_architecture_name(size_t index);
// Whether a model of that architecture can be written with moeslice_model_save.
bool moeslice_architecture_saves(size_t index);

#ifdef __cplusplus
}
#endif
