// A device for the tests: it computes on the processor, and throws when it is told to, as a driver does whose device is lost.
#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// What can fail; bits of the argument of moeslice_faulty_arm.
enum moeslice_fault {
    MOESLICE_FAULT_COMPUTE     = 1,
    MOESLICE_FAULT_SYNCHRONIZE = 2,
    MOESLICE_FAULT_READ        = 4,
    MOESLICE_FAULT_WRITE       = 8,
    MOESLICE_FAULT_CLEAR       = 16,
};

// The device, which llama.cpp knows from the first call on.
ggml_backend_dev_t moeslice_faulty_device(void);
// From now on the calls in `faults` throw, and no others.
void moeslice_faulty_arm(int faults);

struct llama_context;
// Bytes of the buffer in which a context keeps its outputs, which llama.cpp itself does not tell.
size_t moeslice_output_bytes(const struct llama_context * context);

#ifdef __cplusplus
}
#endif
