// What bindgen reads: llama.cpp's C interface and the shim.
#include "ggml.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "gguf.h"
#include "llama.h"
#include "shim.h"
#include "chat_shim.h"
#ifdef MOESLICE_FAULTS
#include "faulty.h"
#endif
