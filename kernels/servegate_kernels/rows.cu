// The small kernels of a decoder: one block of threads a row, so that a row never sees its neighbours.
#include "numeric.cuh"
#include "reduce.cuh"

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;

struct alignas(16) Word {
    unsigned at[4];
};

// grid (rows). out[row] = table[ids[row]], in words of 16 bytes.
__global__ void __launch_bounds__(THREADS, 1)
    embedding(Read<Word> table, Read<long long> ids, Write<Word> out, long long words) {
    const Word* source = table + ids[blockIdx.x] * words;
    Word* target = out + static_cast<long long>(blockIdx.x) * words;
#pragma unroll 4  // left alone, the compiler unrolls for rows far longer than they are, at three times the registers
    for (long long i = threadIdx.x; i < words; i += THREADS) target[i] = source[i];
}

// grid (rows). Writes a row's K and V, `words` words of 16 bytes each, to its slot of the pools; slot -1 is a padding
// row and writes nothing. Rows of the input may lie `stride` words apart (a slice of a fused projection).
__global__ void __launch_bounds__(THREADS, 1)
    kv_write(Read<Word> keys, Read<Word> values, Write<Word> key_pool, Write<Word> value_pool, Read<long long> slots,
             long long words, long long key_stride, long long value_stride) {
    const long long row = blockIdx.x, slot = slots[row];
    if (slot < 0) return;
#pragma unroll 2  // as above
    for (long long i = threadIdx.x; i < words; i += THREADS) {
        const Word key = keys[row * key_stride + i], value = values[row * value_stride + i];
        key_pool[slot * words + i] = key;
        value_pool[slot * words + i] = value;
    }
}

struct NormShared {
    double slots[WARPS];
};

// grid (rows). s = x + residual rounded to T (s = x without a residual), written to `sum` if there is a residual;
// out = s / sqrt(mean(s^2) + eps) * weight, computed in Acc<T> and rounded once. columns: a multiple of 16 bytes.
// Each thread sums the squares of every THREADS-th pack in ascending order, then the tree of block_sum.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    rms_norm(const T* x, const T* residual, const T* weight, T* out, T* sum, long long columns, double eps) {
    using A = Acc<T>;
    BLOCK_SHARED(NormShared, shared);
    A(&slots)[WARPS] = reinterpret_cast<A(&)[WARPS]>(shared.slots);
    const long long start = blockIdx.x * columns, packs = columns / Pack<T>::SIZE;
    const Pack<T>* source = reinterpret_cast<const Pack<T>*>(residual == nullptr ? x + start : sum + start);
    A squares = A(0);
    for (long long i = threadIdx.x; i < packs; i += THREADS) {
        Pack<T> value = reinterpret_cast<const Pack<T>*>(x + start)[i];
        if (residual != nullptr) {
            const Pack<T> other = reinterpret_cast<const Pack<T>*>(residual + start)[i];
#pragma unroll
            for (int e = 0; e < Pack<T>::SIZE; ++e) value.at[e] = narrow<T>(widen(value.at[e]) + widen(other.at[e]));
            reinterpret_cast<Pack<T>*>(sum + start)[i] = value;
        }
#pragma unroll
        for (int e = 0; e < Pack<T>::SIZE; ++e) squares = fused(widen(value.at[e]), widen(value.at[e]), squares);
    }
    const A mean = block_sum<WARPS>(squares, slots) / static_cast<A>(columns);
    const A norm = A(1) / root(mean + static_cast<A>(eps));
    for (long long i = threadIdx.x; i < packs; i += THREADS) {  // the same thread wrote this pack of `sum`
        const Pack<T> value = source[i];
        const Pack<T> gain = reinterpret_cast<const Pack<T>*>(weight)[i];
        Pack<T> result;
#pragma unroll
        for (int e = 0; e < Pack<T>::SIZE; ++e)
            result.at[e] = narrow<T>(widen(value.at[e]) * norm * widen(gain.at[e]));
        reinterpret_cast<Pack<T>*>(out + start)[i] = result;
    }
}

// grid (rows). x rows of heads * head_size, `stride` elements apart; out contiguous. Rotates the pairs (i, i + head_size/2)
// of each head by the angle of the row's position; cosines, sines [positions, head_size / 2] come from float64 on the host.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    rope(Read<T> x, Read<Acc<T>> cosines, Read<Acc<T>> sines, Read<long long> positions, Write<T> out, long long heads,
         long long head_size, long long stride) {
    using A = Acc<T>;
    const long long row = blockIdx.x;
    const int half = static_cast<int>(head_size) / 2, pairs = static_cast<int>(heads) * half;  // 64-bit division is slow
    const long long angles = positions[row] * half;
    for (int i = threadIdx.x; i < pairs; i += THREADS) {
        const int first = i / half * 2 * half + i % half;
        const A a = widen(x[row * stride + first]), b = widen(x[row * stride + first + half]);
        const A c = cosines[angles + i % half], s = sines[angles + i % half];
        T* target = out + row * heads * head_size + first;
        target[0] = narrow<T>(fused(a, c, -(b * s)));
        target[half] = narrow<T>(fused(b, c, a * s));
    }
}

// grid (rows, ceil(width / (THREADS * pack))). gate_up [rows, 2 * width] -> out [rows, width]: silu(gate) * up.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1) silu_mul(Read<T> gate_up, Write<T> out, long long width) {
    using A = Acc<T>;
    const long long row = blockIdx.x, packs = width / Pack<T>::SIZE;
    const long long i = static_cast<long long>(blockIdx.y) * THREADS + threadIdx.x;
    if (i >= packs) return;
    const Pack<T> gate = reinterpret_cast<const Pack<T>*>(gate_up + row * 2 * width)[i];
    const Pack<T> up = reinterpret_cast<const Pack<T>*>(gate_up + row * 2 * width + width)[i];
    Pack<T> result;
#pragma unroll
    for (int e = 0; e < Pack<T>::SIZE; ++e) {
        const A g = widen(gate.at[e]);
        result.at[e] = narrow<T>(g / (A(1) + exponential(-g)) * widen(up.at[e]));
    }
    reinterpret_cast<Pack<T>*>(out + row * width)[i] = result;
}
