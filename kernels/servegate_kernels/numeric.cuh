// Number types: what a kernel stores (T) and what it computes in (Acc<T>). half and bfloat16 compute in float,
// float in float, double in double: the reference numerics have no float island anywhere.
// Contraction is switched off for every build, so each fused multiply-add is one that is written here.
#pragma once
#include "device.cuh"

template <typename T>
struct Accumulator {
    using type = float;
};
template <>
struct Accumulator<double> {
    using type = double;
};
template <typename T>
using Acc = typename Accumulator<T>::type;

// What a kernel only reads, and what it only writes: no two overlap, so that loads need not wait for stores.
template <typename T>
using Read = const T* __restrict__;
template <typename T>
using Write = T* __restrict__;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(f16 x) { return f16_to_float(x); }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

template <typename T>
__device__ __forceinline__ T narrow(Acc<T> x) {
    return x;
}
template <>
__device__ __forceinline__ f16 narrow<f16>(float x) {
    return f16_from_float(x);
}
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float x) {
    return bf16_from_float(x);
}

__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

// A real -inf: a finite stand-in is beaten by a very negative real score.
template <typename A>
__device__ __forceinline__ A minus_infinity() {
    return static_cast<A>(__int_as_float(static_cast<int>(0xff800000)));
}

// Two neighbours, loaded at once.
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
    T at[2];
};

// 16 bytes of T: one load of a thread.
template <typename T>
struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T at[SIZE];
};
