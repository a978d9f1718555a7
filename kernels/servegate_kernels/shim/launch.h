// The C interface of a shim library: one entry for each kernel, arguments as an array of pointers to them, the way
// cuLaunchKernel takes them.
#pragma once
#include "device.h"

namespace shim {

template <typename... Parameters, size_t... I>
std::string launch(void (*kernel)(Parameters...), void** arguments, dim3 grid, unsigned threads, bool backwards,
                   std::index_sequence<I...>) {
    return run_grid(grid, threads, backwards, [&] { kernel(*static_cast<Parameters*>(arguments[I])...); });
}

template <typename... Parameters>
int launch(void (*kernel)(Parameters...), void** arguments, const unsigned* grid, unsigned threads, int backwards,
           char* message, size_t message_bytes) {
    const std::string error = launch(kernel, arguments, {grid[0], grid[1], grid[2]}, threads, backwards != 0,
                                     std::index_sequence_for<Parameters...>());
    snprintf(message, message_bytes, "%s", error.c_str());
    return error.empty() ? 0 : 1;
}

}  // namespace shim

#define SHIM_ENTRY(symbol, ...)                                                                                       \
    extern "C" int symbol(void** arguments, const unsigned* grid, unsigned threads, int backwards, char* message,     \
                          size_t message_bytes) {                                                                     \
        return shim::launch(__VA_ARGS__, arguments, grid, threads, backwards, message, message_bytes);                \
    }
