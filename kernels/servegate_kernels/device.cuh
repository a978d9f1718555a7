// Everything the kernels ask of the hardware that is not plain CUDA C++. The host shim is the other implementation
// of the same names (shim/device.h), so that a kernel file never mentions where it runs.
#pragma once

// One statically sized struct of shared memory a kernel. The shim fills it with NaN before every block.
#define BLOCK_SHARED(Type, name) __shared__ Type name

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

__device__ __forceinline__ float f16_to_float(f16 x) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}

// Round to nearest, ties to even.
__device__ __forceinline__ f16 f16_from_float(float x) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
}

__device__ __forceinline__ bf16 bf16_from_float(float x) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    return result;
}

// Starts a copy of 16 bytes from global to shared memory; `present == false` writes zeros and reads nothing.
__device__ __forceinline__ void copy16_start(void* shared, const void* global, bool present = true) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(present ? 16 : 0)
                 : "memory");
}

// Closes the group of copies that this thread started since the last call.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups are unfinished. Other threads need a barrier after it.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// c += a * b for a 16x16 tile of a and a 16x8 tile of b, by one warp; fragment layout of PTX mma.m16n8k16:
// with group = lane / 4 and pair = 2 * (lane % 4), a register holds two neighbours in k,
//   a[0] = (row group, k pair), a[1] = (group + 8, pair), a[2] = (group, pair + 8), a[3] = (group + 8, pair + 8)
//   b[0] = (k pair, column group), b[1] = (pair + 8, group)
//   c[0..1] = (row group, columns pair, pair + 1), c[2..3] = the same of row group + 8
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
