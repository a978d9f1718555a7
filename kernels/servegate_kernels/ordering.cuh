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
