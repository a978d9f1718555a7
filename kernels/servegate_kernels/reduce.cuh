// Reductions in one fixed order: the tree depends on the number of lanes and threads, which are compile-time
// constants, and on nothing else. Every thread gets the result.
#pragma once
#include "numeric.cuh"

constexpr unsigned WHOLE_WARP = 0xffffffffu;

// Over aligned groups of LANES neighbours, by xor distance LANES/2, ..., 2, 1.
template <int LANES, typename A>
__device__ __forceinline__ A lanes_sum(A x) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(WHOLE_WARP, x, distance);
    return x;
}

template <typename A>
__device__ __forceinline__ A warp_max(A x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x = larger(x, __shfl_xor_sync(WHOLE_WARP, x, distance));
    return x;
}

// The warps' trees, then the warps' results in ascending order. `slots` is shared memory that no one else uses.
template <int WARPS, typename A>
__device__ __forceinline__ A block_sum(A x, A (&slots)[WARPS]) {
    x = lanes_sum<32>(x);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
    __syncthreads();
    A total = slots[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) total += slots[warp];
    __syncthreads();
    return total;
}

template <int WARPS, typename A>
__device__ __forceinline__ A block_max(A x, A (&slots)[WARPS]) {
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
    __syncthreads();
    A best = slots[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) best = larger(best, slots[warp]);
    __syncthreads();
    return best;
}
