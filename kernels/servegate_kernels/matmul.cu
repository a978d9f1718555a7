// y = x W^T + b whose rows do not depend on the number of rows: no split over k, every output element sums its products
// in ascending order of k, and the tile shapes that differ with the number of rows only change who computes an element.
//   x [m, k], w [n, k], bias [n] or null, y [m, n]; rows of x and w are multiples of 16 bytes.
//   grid (ceil(m / tile rows), ceil(n / tile columns)).
#include "numeric.cuh"

// ---- float and double: plain fused multiply-adds, 16 x 16 threads, ROWS x 4 outputs a thread ----

constexpr int SCALAR_K = 16;
constexpr int SCALAR_COLUMNS = 64;

template <typename T, int ROWS>
struct ScalarShared {
    T x[SCALAR_K][16 * ROWS + 1];
    T w[SCALAR_K][SCALAR_COLUMNS + 1];
};

template <typename T, int ROWS>
__global__ void __launch_bounds__(256, 1)
    matmul_scalar(Read<T> x, Read<T> w, Read<T> bias, Write<T> y, long long m, long long n, long long k) {
    using Shared = ScalarShared<T, ROWS>;
    BLOCK_SHARED(Shared, s);
    const int column = threadIdx.x % 16, row = threadIdx.x / 16;
    const long long first_row = static_cast<long long>(blockIdx.x) * 16 * ROWS;
    const long long first_column = static_cast<long long>(blockIdx.y) * SCALAR_COLUMNS;
    T sum[ROWS][4] = {};
    for (long long start = 0; start < k; start += SCALAR_K) {
        // Neighbouring threads read neighbours in k. Past the edge: zeros, whose products change no sum.
        const long long at = start + column;
        for (int i = row; i < 16 * ROWS; i += 16)
            s.x[column][i] = first_row + i < m && at < k ? x[(first_row + i) * k + at] : T(0);
        for (int i = row; i < SCALAR_COLUMNS; i += 16)
            s.w[column][i] = first_column + i < n && at < k ? w[(first_column + i) * k + at] : T(0);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < SCALAR_K; ++step)
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sum[i][j] = fused(s.x[step][row + 16 * i], s.w[step][column + 16 * j], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const long long r = first_row + row + 16 * i, c = first_column + column + 16 * j;
            if (r < m && c < n) y[r * n + c] = bias == nullptr ? sum[i][j] : sum[i][j] + bias[c];
        }
}

// ---- half and bfloat16: tensor cores, float accumulators, mma steps of 16 in ascending k ----

// A tile shape: WARPS_M x WARPS_N warps of TILES_M x TILES_N mma tiles (16 rows x 8 columns), K elements a stage.
template <int WARPS_M_, int WARPS_N_, int TILES_M_, int TILES_N_, int K_, int STAGES_>
struct TileShape {
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, TILES_M = TILES_M_, TILES_N = TILES_N_;
    static constexpr int K = K_, STAGES = STAGES_;
    static constexpr int ROWS = WARPS_M * TILES_M * 16, COLUMNS = WARPS_N * TILES_N * 8;
    static constexpr int THREADS = WARPS_M * WARPS_N * 32;
};
using DecodeTile = TileShape<1, 4, 1, 1, 64, 4>;  // 16 x 32: as many blocks as columns allow, for one step of decode
using MediumTile = TileShape<2, 2, 2, 4, 32, 4>;  // 64 x 64
using LargeTile = TileShape<2, 4, 4, 4, 32, 2>;   // 128 x 128

template <typename T, typename Tile>
struct alignas(16) TensorShared {
    static constexpr int STRIDE = Tile::K + 8;  // 16 bytes more, so that the eight rows of a fragment meet no bank twice
    T x[Tile::STAGES][Tile::ROWS][STRIDE];
    T w[Tile::STAGES][Tile::COLUMNS][STRIDE];
};

template <typename T>
__device__ __forceinline__ unsigned two_neighbours(const T* at) {
    return *reinterpret_cast<const unsigned*>(at);
}

// Copies K elements from `start` of each of ROWS rows; rows and elements past the edge become zeros.
template <typename Tile, int ROWS, typename T, int STRIDE>
__device__ __forceinline__ void load_stage(T (&stage)[ROWS][STRIDE], const T* source, long long first, long long rows,
                                           long long start, long long k) {
    constexpr int CHUNKS = Tile::K / Pack<T>::SIZE;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += Tile::THREADS) {
        const int row = i / CHUNKS, element = i % CHUNKS * Pack<T>::SIZE;
        const bool present = first + row < rows && start + element < k;
        copy16_start(&stage[row][element], present ? source + (first + row) * k + start + element : source, present);
    }
}

template <typename T, typename Out, typename Tile>
__global__ void __launch_bounds__(Tile::THREADS, 1)
    matmul_tensor(Read<T> x, Read<T> w, Read<T> bias, Write<Out> y, long long m, long long n, long long k) {
    using Shared = TensorShared<T, Tile>;
    BLOCK_SHARED(Shared, s);
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    const int warp_row = warp / Tile::WARPS_N * Tile::TILES_M * 16, warp_column = warp % Tile::WARPS_N * Tile::TILES_N * 8;
    const long long first_row = static_cast<long long>(blockIdx.x) * Tile::ROWS;
    const long long first_column = static_cast<long long>(blockIdx.y) * Tile::COLUMNS;
    const long long steps = (k + Tile::K - 1) / Tile::K;
    float sum[Tile::TILES_M][Tile::TILES_N][4] = {};

    const auto load = [&](long long step) {
        if (step < steps) {
            load_stage<Tile>(s.x[step % Tile::STAGES], x, first_row, m, step * Tile::K, k);
            load_stage<Tile>(s.w[step % Tile::STAGES], w, first_column, n, step * Tile::K, k);
        }
        copy_commit();
    };
    for (int step = 0; step < Tile::STAGES - 1; ++step) load(step);
    for (long long step = 0; step < steps; ++step) {
        copy_wait<Tile::STAGES - 2>();
        __syncthreads();  // this step's stage is complete, and the stage of the step before is free again
        load(step + Tile::STAGES - 1);
        const auto& stage_x = s.x[step % Tile::STAGES];
        const auto& stage_w = s.w[step % Tile::STAGES];
#pragma unroll
        for (int at = 0; at < Tile::K; at += 16) {
            unsigned a[Tile::TILES_M][4], b[Tile::TILES_N][2];
#pragma unroll
            for (int i = 0; i < Tile::TILES_M; ++i)
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    a[i][part] = two_neighbours(
                        &stage_x[warp_row + i * 16 + group + part % 2 * 8][at + pair + part / 2 * 8]);
#pragma unroll
            for (int j = 0; j < Tile::TILES_N; ++j)
#pragma unroll
                for (int part = 0; part < 2; ++part)
                    b[j][part] = two_neighbours(&stage_w[warp_column + j * 8 + group][at + pair + part * 8]);
#pragma unroll
            for (int i = 0; i < Tile::TILES_M; ++i)
#pragma unroll
                for (int j = 0; j < Tile::TILES_N; ++j) mma_16x8x16(sum[i][j], a[i], b[j], T{});
        }
    }
#pragma unroll
    for (int i = 0; i < Tile::TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < Tile::TILES_N; ++j)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const long long row = first_row + warp_row + i * 16 + group + part / 2 * 8;
                const long long column = first_column + warp_column + j * 8 + pair + part % 2;
                if (row >= m || column >= n) continue;
                const float bias_value = bias == nullptr ? 0.0f : widen(bias[column]);
                y[row * n + column] = narrow<Out>(sum[i][j][part] + bias_value);
            }
}
