// Keeps C++ exceptions inside the shim.
#pragma once

#include <cstdio>
#include <exception>

// Runs `call`; an exception becomes its text in `error` and the value `thrown`.
template <typename Result, typename Call>
Result guarded(Result thrown, char * error, size_t error_size, Call call) {
    try {
        return call();
    } catch (const std::exception & e) {
        std::snprintf(error, error_size, "%s", e.what());
    } catch (...) {
        std::snprintf(error, error_size, "an exception of unknown type");
    }
    return thrown;
}
