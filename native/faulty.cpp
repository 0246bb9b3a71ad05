#include "faulty.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "llama-context.h"

#include <atomic>
#include <cstring>
#include <stdexcept>

static std::atomic<int> armed{ 0 };

static void fail_if_armed(int fault, const char * call) {
    if (armed.load() & fault) {
        throw std::runtime_error(std::string(call) + ": ErrorDeviceLost");
    }
}

// Memory: the processor's, behind the faults.

static ggml_backend_buffer_t inner_of(ggml_backend_buffer_t buffer) {
    return static_cast<ggml_backend_buffer_t>(buffer->context);
}

static const ggml_backend_buffer_i BUFFER = {
    /*.free_buffer   =*/ [](ggml_backend_buffer_t buffer) { ggml_backend_buffer_free(inner_of(buffer)); },
    /*.get_base      =*/ [](ggml_backend_buffer_t buffer) { return ggml_backend_buffer_get_base(inner_of(buffer)); },
    /*.init_tensor   =*/ nullptr,
    /*.memset_tensor =*/ [](ggml_backend_buffer_t, ggml_tensor * tensor, uint8_t value, size_t offset, size_t size) {
        std::memset(static_cast<char *>(tensor->data) + offset, value, size);
    },
    /*.set_tensor    =*/ [](ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
        fail_if_armed(MOESLICE_FAULT_WRITE, "faulty::write");
        std::memcpy(static_cast<char *>(tensor->data) + offset, data, size);
    },
    /*.get_tensor    =*/ [](ggml_backend_buffer_t, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
        fail_if_armed(MOESLICE_FAULT_READ, "faulty::read");
        std::memcpy(data, static_cast<const char *>(tensor->data) + offset, size);
    },
    /*.set_tensor_2d =*/ nullptr,
    /*.get_tensor_2d =*/ nullptr,
    /*.cpy_tensor    =*/ nullptr,
    /*.clear         =*/ [](ggml_backend_buffer_t buffer, uint8_t value) {
        fail_if_armed(MOESLICE_FAULT_CLEAR, "faulty::clear");
        std::memset(ggml_backend_buffer_get_base(inner_of(buffer)), value, buffer->size);
    },
    /*.reset         =*/ nullptr,
    /*.set_tensor_n  =*/ nullptr,
    /*.get_tensor_n  =*/ nullptr,
    /*.cpy_tensor_n  =*/ nullptr,
};

static ggml_backend_buffer_type_t memory() {
    static ggml_backend_buffer_type type = {
        /*.iface   =*/ {
            /*.get_name         =*/ [](ggml_backend_buffer_type_t) { return "Faulty0"; },
            /*.alloc_buffer     =*/ [](ggml_backend_buffer_type_t type, size_t size) -> ggml_backend_buffer_t {
                ggml_backend_buffer_t inner = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
                return inner == nullptr ? nullptr : ggml_backend_buffer_init(type, BUFFER, inner, size);
            },
            /*.alloc_buffer_n   =*/ nullptr,
            /*.get_alignment    =*/ [](ggml_backend_buffer_type_t) { return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type()); },
            /*.get_max_size     =*/ nullptr,
            /*.get_alloc_size   =*/ nullptr,
            /*.get_alloc_size_n =*/ nullptr,
            /*.is_host          =*/ [](ggml_backend_buffer_type_t) { return true; },
        },
        /*.device  =*/ moeslice_faulty_device(),
        /*.context =*/ nullptr,
    };
    return &type;
}

// Computing: the processor's, behind the faults.

static ggml_backend_t start(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = { 'm', 'o', 'e', 's', 'l', 'i', 'c', 'e', '-', 'f', 'a', 'u', 'l', 't', 'y', '0' };
    ggml_backend_i iface{};
    iface.get_name = [](ggml_backend_t) { return "Faulty0"; };
    iface.free = [](ggml_backend_t backend) {
        ggml_backend_free(static_cast<ggml_backend_t>(backend->context));
        delete backend;
    };
    iface.synchronize = [](ggml_backend_t) { fail_if_armed(MOESLICE_FAULT_SYNCHRONIZE, "faulty::synchronize"); };
    iface.graph_compute = [](ggml_backend_t backend, ggml_cgraph * graph) {
        fail_if_armed(MOESLICE_FAULT_COMPUTE, "faulty::compute");
        return ggml_backend_graph_compute(static_cast<ggml_backend_t>(backend->context), graph);
    };
    return new ggml_backend{ &guid, iface, device, ggml_backend_cpu_init() };
}

static ggml_backend_dev_t processor() {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

static ggml_backend_reg_t registry() {
    static ggml_backend_reg reg = {
        /*.api_version =*/ GGML_BACKEND_API_VERSION,
        /*.iface       =*/ {
            /*.get_name         =*/ [](ggml_backend_reg_t) { return "Faulty"; },
            /*.get_device_count =*/ [](ggml_backend_reg_t) -> size_t { return 1; },
            /*.get_device       =*/ [](ggml_backend_reg_t, size_t) { return moeslice_faulty_device(); },
            /*.get_proc_address =*/ nullptr,
        },
        /*.context     =*/ nullptr,
    };
    return &reg;
}

static ggml_backend_device make_device() {
    ggml_backend_device_i iface{};
    iface.get_name        = [](ggml_backend_dev_t) { return "Faulty0"; };
    iface.get_description = [](ggml_backend_dev_t) { return "a device that fails on command"; };
    iface.get_memory      = [](ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = size_t(1) << 30; };
    iface.get_type        = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    iface.get_props       = [](ggml_backend_dev_t device, ggml_backend_dev_props * props) {
        *props             = {};
        props->name        = ggml_backend_dev_name(device);
        props->description = ggml_backend_dev_description(device);
        props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
        ggml_backend_dev_memory(device, &props->memory_free, &props->memory_total);
    };
    iface.init_backend    = start;
    iface.get_buffer_type = [](ggml_backend_dev_t) { return memory(); };
    iface.supports_op     = [](ggml_backend_dev_t, const ggml_tensor * op) { return ggml_backend_dev_supports_op(processor(), op); };
    iface.supports_buft   = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return type == memory(); };
    return { iface, registry(), nullptr };
}

ggml_backend_dev_t moeslice_faulty_device(void) {
    static ggml_backend_device device = make_device();
    static bool known = [] {
        ggml_backend_device_register(&device);
        return true;
    }();
    (void) known;
    return &device;
}

void moeslice_faulty_arm(int faults) {
    armed.store(faults);
}

// The buffer is private. An explicit instantiation may name it all the same.
template <ggml_backend_buffer_ptr llama_context::*member>
struct reach {
    friend const ggml_backend_buffer_ptr & outputs_of(const llama_context & context) { return context.*member; }
};
const ggml_backend_buffer_ptr & outputs_of(const llama_context & context);
template struct reach<&llama_context::buf_output>;

size_t moeslice_output_bytes(const llama_context * context) {
    const ggml_backend_buffer_ptr & buffer = outputs_of(*context);
    return buffer ? ggml_backend_buffer_get_size(buffer.get()) : 0;
}
