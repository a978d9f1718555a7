// The order that sampling and top-n share: higher value first, then lower token id. NaN is not in it.
#pragma once
#include "reduce.cuh"

struct Candidate {
    double value;
    long long id;
};

__device__ __forceinline__ bool before(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The first candidate of the block; `slots` is shared memory that no one else uses. Every thread gets it.
template <int WARPS>
__device__ __forceinline__ Candidate block_first(Candidate mine, Candidate (&slots)[WARPS]) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const Candidate other = {__shfl_xor_sync(WHOLE_WARP, mine.value, distance),
                                 __shfl_xor_sync(WHOLE_WARP, mine.id, distance)};
        if (before(other, mine)) mine = other;
    }
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = mine;
    __syncthreads();
    Candidate best = slots[0];
    for (int warp = 1; warp < WARPS; ++warp)
        if (before(slots[warp], best)) best = slots[warp];
    __syncthreads();
    return best;
}

// A number as an unsigned integer of the same order, above 0; -0 and 0 as one. Integers can be halved between, which is
// how the n-th largest is found, and 32 bits do for all that is stored in up to 32.
__device__ __forceinline__ unsigned order_key(float value) {
    const unsigned bits = __float_as_uint(value + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ unsigned long long order_key(double value) {
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(value + 0.0));
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
}

__device__ __forceinline__ float value_of_key(unsigned key) {
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}
__device__ __forceinline__ double value_of_key(unsigned long long key) {
    return __longlong_as_double(static_cast<long long>(key >> 63 ? key & 0x7fffffffffffffffull : ~key));
}
