// Included before every file of llama.cpp's `common`: the template engine takes the date from here, so that the same
// conversations give the same text on any day and in any time zone.
#pragma once

#include <chrono>
#include <ctime>

// 1 January 2026, 00:00:00 UTC.
#define MOESLICE_CHAT_TIME 1767225600

namespace std {
inline std::time_t moeslice_time(std::time_t *) { return MOESLICE_CHAT_TIME; }
}

#define time      moeslice_time
#define localtime gmtime
