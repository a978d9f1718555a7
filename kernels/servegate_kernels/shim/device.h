// The host's version of CUDA C++ and of device.cuh: the kernel files compile against either, unchanged.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define BLOCK_SHARED(Type, name) Type& name = *static_cast<Type*>(shim::shared_memory(sizeof(Type)))

#define threadIdx (shim::block.threads[shim::current].index)
#define blockIdx (shim::block.index)
#define blockDim (shim::block.size)
#define gridDim (shim::block.grid_size)

#define SHIM_TEXT(x) #x
#define SHIM_LINE(x) SHIM_TEXT(x)
#define SHIM_HERE __FILE__ ":" SHIM_LINE(__LINE__)
#define __syncthreads() shim::wait_at(SHIM_HERE, false)
#define __syncwarp() shim::wait_at(SHIM_HERE, true)
#define __shfl_xor_sync(mask, value, distance) shim::shuffle_xor(value, distance, SHIM_HERE)

namespace shim {

template <typename V>
inline V shuffle_xor(V value, int distance, const char* place) {
    const unsigned lane = current % 32;
    return exchange(value, place).template from<V>(lane ^ distance);
}

template <typename To, typename From>
inline To same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &x, sizeof(To));
    return result;
}

}  // namespace shim

inline float __int_as_float(int x) { return shim::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return shim::same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return shim::same_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return shim::same_bits<double>(x); }
inline long long __double_as_longlong(double x) { return shim::same_bits<long long>(x); }
using std::max;
using std::min;

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

inline float f16_to_float(f16 x) {
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    float magnitude;
    if (exponent == 31) magnitude = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0) magnitude = std::ldexp(float(fraction), -24);
    else magnitude = std::ldexp(float(fraction + 1024), exponent - 25);
    return x.bits & 0x8000 ? -magnitude : magnitude;
}

// Round to nearest even. Scaling by a power of two is exact, so nearbyint makes the one rounding.
inline f16 f16_from_float(float x) {
    const unsigned short sign = std::signbit(x) ? 0x8000 : 0;
    const float magnitude = std::fabs(x);
    if (std::isnan(x)) return {0x7fff};
    if (magnitude == 0.0f) return {sign};
    if (magnitude >= 65520.0f) return {static_cast<unsigned short>(sign | 0x7c00)};
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    exponent = std::max(exponent, -13);  // subnormals share the smallest normal exponent
    const int fraction = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
    return {static_cast<unsigned short>(sign | (((exponent + 13) << 10) + fraction))};
}

inline bf16 bf16_from_float(float x) {
    const unsigned bits = shim::same_bits<unsigned>(x);
    if (std::isnan(x)) return {0x7fff};
    return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// Copies land only when their group is waited for, so that a missing wait shows as poison.
inline void copy16_start(void* shared, const void* global, bool present = true) {
    shim::Thread& thread = shim::block.threads[shim::current];
    thread.copies.push_back({shared, global, present, thread.groups_committed});
}

inline void copy_commit() { ++shim::block.threads[shim::current].groups_committed; }

template <int PENDING>
inline void copy_wait() {
    shim::Thread& thread = shim::block.threads[shim::current];
    auto landed = [&](const shim::PendingCopy& copy) {
        if (copy.group >= thread.groups_committed - PENDING) return false;
        if (copy.present) memcpy(copy.target, copy.source, 16);
        else memset(copy.target, 0, 16);
        return true;
    };
    thread.copies.erase(std::remove_if(thread.copies.begin(), thread.copies.end(), landed), thread.copies.end());
}

// The tensor core's product on the CPU: the fragments go through the layout of PTX mma.m16n8k16, each output adds its 16
// products in ascending k by fused multiply-adds. The hardware's own order inside a step of 16 is not documented, so
// host and device agree within rounding, not in bits; both are the same for every row, which is what is promised.
template <typename T>
inline void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], T) {
    struct Fragments {
        unsigned a[4], b[2];
    };
    const auto warp = shim::exchange(Fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, "mma_16x8x16");
    const auto element = [](unsigned two, int which) {
        const T value = {static_cast<unsigned short>(which ? two >> 16 : two)};
        if constexpr (std::is_same_v<T, f16>) return f16_to_float(value);
        else return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
    };
    const unsigned group = shim::current % 32 / 4, pair = shim::current % 4 * 2;
    for (int part = 0; part < 4; ++part) {
        const unsigned upper = part / 2, column = pair + part % 2;
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned owner = k % 8 / 2, right = k / 8;
            const float x = element(warp.template from<Fragments>(group * 4 + owner).a[upper + 2 * right], k % 2);
            const float w = element(warp.template from<Fragments>(column * 4 + owner).b[right], k % 2);
            c[part] = fmaf(x, w, c[part]);
        }
    }
}
