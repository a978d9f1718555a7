// Paged attention, for decode and prefill alike.
//
// A row is one query token. Its history is cut into splits of SPLIT tokens and each split into tiles of TILE tokens,
// both counted from token 0 of the sequence, so nothing that the arithmetic of a row depends on can change with the
// page size, the physical pages, the chunk that the row came in or the rows beside it. A block of threads computes one
// split for up to VECTORS (row, head) pairs of one KV head, so that K and V are read once for all of them; a second
// kernel merges a row's splits in ascending order. One row a block is the decode kernel; several neighbouring rows of
// one sequence a block is the tiled prefill kernel: the same code, hence the same bits.
//
// Online softmax after Milakov and Gimelshein (2018); split and merge after Flash-Decoding (Dao et al., 2023).
#include "numeric.cuh"
#include "paging.cuh"
#include "reduce.cuh"

constexpr int SPLIT = 256;
constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;

// Tokens a tile: K and V tiles stay within 16 KiB each, so that everything fits into 48 KiB of static shared memory.
__device__ constexpr int tile_tokens(int element_bytes, int head_size) {
    if (element_bytes < 8 && element_bytes * head_size <= 512) return 32;
    return element_bytes * head_size <= 1024 ? 16 : 8;
}

// In the score phase THREADS / TILE neighbouring lanes share a token and read its 16-byte chunks in turn. With four
// lanes a token, rows must lie an odd multiple of 64 bytes apart or two tokens meet in one bank.
__device__ constexpr int padded_chunks(int chunks, int lanes) {
    while (lanes == 4 && chunks % 8 != 4) ++chunks;
    return chunks;
}

// Thread groups in the value phase: each thread owns two neighbouring output elements of every GROUPS-th vector.
__device__ constexpr int value_groups(int head_size) { return head_size == 256 ? 1 : head_size == 64 ? 4 : 2; }

template <typename T, int HEAD, int VECTORS>
struct alignas(16) SplitShared {
    using A = Acc<T>;
    static constexpr int TILE = tile_tokens(sizeof(T), HEAD);
    static constexpr int CHUNKS = HEAD / Pack<T>::SIZE;
    Pack<T> keys[TILE][padded_chunks(CHUNKS, THREADS / TILE)];
    Pack<T> values[TILE][CHUNKS];
    Pack<A> weights[VECTORS][TILE / Pack<A>::SIZE];  // scores, then exp(score - running maximum)
    Pack<A> queries[VECTORS][HEAD / Pack<A>::SIZE];
    A rescale[VECTORS];
    A running_max[VECTORS];
    A running_sum[VECTORS];
    long long slots[SPLIT];
    int visible[VECTORS];  // tokens of this split that a vector's row may see

    __device__ A* scores(int vector) { return weights[vector][0].at; }
    __device__ A* query(int vector) { return queries[vector][0].at; }
};

// Starts copying tokens [first, first + TILE) of the split that any row sees; the rest of the tile is left as it is.
template <typename T, int HEAD, int TILE, int STRIDE>
__device__ __forceinline__ void load_tile(Pack<T> (&tile)[TILE][STRIDE], const T* pool, const long long* slots, int first,
                                          int visible, long long slot_width) {
    constexpr int CHUNKS = HEAD / Pack<T>::SIZE;
    for (int i = threadIdx.x; i < TILE * CHUNKS; i += THREADS) {
        const int token = i / CHUNKS, chunk = i % CHUNKS;
        if (first + token < visible)
            copy16_start(&tile[token][chunk], pool + slots[first + token] * slot_width + chunk * Pack<T>::SIZE);
    }
}

// scores[v][token] = scale * dot(q[v], k[token]): lanes take chunks in turn, then a fixed tree over the lanes.
template <typename T, int HEAD, int VECTORS>
__device__ __forceinline__ void score_tile(SplitShared<T, HEAD, VECTORS>& s, int vectors, int tokens, Acc<T> scale) {
    using A = Acc<T>;
    using Shared = SplitShared<T, HEAD, VECTORS>;
    constexpr int LANES = THREADS / Shared::TILE;
    constexpr int AT_ONCE = VECTORS < 4 ? VECTORS : 4;  // vectors that share one read of K, bounded by registers
    constexpr int PARTS = Pack<T>::SIZE / Pack<A>::SIZE;  // query packs to a key pack
    const int token = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int base = 0; base < vectors; base += AT_ONCE) {
        A dot[AT_ONCE] = {};
        for (int chunk = lane; token < tokens && chunk < Shared::CHUNKS; chunk += LANES) {
            const Pack<T> key = s.keys[token][chunk];
#pragma unroll
            for (int v = 0; v < AT_ONCE; ++v) {
                if (base + v >= vectors) break;
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    const Pack<A> query = s.queries[base + v][chunk * PARTS + part];
#pragma unroll
                    for (int e = 0; e < Pack<A>::SIZE; ++e)
                        dot[v] = fused(query.at[e], widen(key.at[part * Pack<A>::SIZE + e]), dot[v]);
                }
            }
        }
#pragma unroll
        for (int v = 0; v < AT_ONCE; ++v) {
            const A total = lanes_sum<LANES>(dot[v]);
            if (lane == 0 && token < tokens && base + v < vectors) s.scores(base + v)[token] = total * scale;
        }
    }
}

// One warp a vector, one lane a token: moves the running maximum and sum, turns scores into weights.
template <typename T, int HEAD, int VECTORS>
__device__ __forceinline__ void softmax_tile(SplitShared<T, HEAD, VECTORS>& s, int vectors, int first) {
    using A = Acc<T>;
    const int lane = threadIdx.x % 32;
    for (int v = threadIdx.x / 32; v < vectors; v += WARPS) {
        const int count = min(SplitShared<T, HEAD, VECTORS>::TILE, s.visible[v] - first);
        if (count <= 0) continue;  // the row ends before this tile: its state must not be touched
        const A score = lane < count ? s.scores(v)[lane] : minus_infinity<A>();
        const A before = s.running_max[v];
        const A after = larger(before, warp_max(score));
        const A base = after == minus_infinity<A>() ? A(0) : after;  // nothing seen yet: exp(-inf - 0) is 0, not NaN
        const A weight = exponential(score - base);
        const A sum = lanes_sum<32>(weight);
        const A rescale = exponential(before - base);
        if (lane < count) s.scores(v)[lane] = weight;
        __syncwarp();
        if (lane == 0) {
            s.rescale[v] = rescale;
            s.running_max[v] = after;
            s.running_sum[v] = fused(s.running_sum[v], rescale, sum);
        }
    }
}

// out[v] = out[v] * rescale[v] + sum over the tile's visible tokens, in ascending order, of weight * value.
// Tokens a row cannot see are skipped, not multiplied by zero: 0 * NaN is NaN, and -0 + 0 is not -0.
template <typename T, int HEAD, int VECTORS, int EACH>
__device__ __forceinline__ void accumulate_tile(SplitShared<T, HEAD, VECTORS>& s, Acc<T> (&out)[EACH][2], int group, int pair,
                                                int vectors, int first, int tokens) {
    using A = Acc<T>;
    constexpr int GROUPS = value_groups(HEAD), STEP = Pack<A>::SIZE;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        const int v = group + GROUPS * j;
        if (v < vectors && s.visible[v] > first) {
            out[j][0] *= s.rescale[v];
            out[j][1] *= s.rescale[v];
        }
    }
    for (int start = 0; start < tokens; start += STEP) {
        A value[STEP][2];
#pragma unroll
        for (int t = 0; t < STEP; ++t) {
            const Pair<T> two = reinterpret_cast<const Pair<T>*>(s.values[start + t])[pair];
            value[t][0] = widen(two.at[0]);
            value[t][1] = widen(two.at[1]);
        }
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int v = group + GROUPS * j;
            if (v >= vectors) break;
            const int count = s.visible[v] - first - start;
            const Pack<A> weight = s.weights[v][start / STEP];
#pragma unroll
            for (int t = 0; t < STEP; ++t) {
                if (t < count) {
                    out[j][0] = fused(weight.at[t], value[t][0], out[j][0]);
                    out[j][1] = fused(weight.at[t], value[t][1], out[j][1]);
                }
            }
        }
    }
}

// grid (row blocks, KV heads * head groups, splits), THREADS threads.
//   queries [rows, heads, HEAD]; keys, values [slots, kv_heads, HEAD]; tables [sequences, table_width]
//   row_sequence, row_tokens [rows]: a row's table and how many tokens it sees, its own included (0: none)
//   row_blocks [row blocks, 2]: first row and number of rows, all of one sequence; rows * heads_per_block <= VECTORS
//   partial [rows, heads, splits, HEAD] unnormalised; partial_state [rows, heads, splits, 2]: maximum and sum
template <typename T, int HEAD, int VECTORS>
__global__ void __launch_bounds__(THREADS, 1)
    attention_split(Read<T> queries, Read<T> keys, Read<T> values, Read<long long> tables, Read<long long> row_sequence,
                    Read<long long> row_tokens, Read<long long> row_blocks, Write<Acc<T>> partial,
                    Write<Acc<T>> partial_state, long long heads, long long kv_heads, long long heads_per_block,
                    long long block_size, long long table_width, long long splits, double scale) {
    using A = Acc<T>;
    using Shared = SplitShared<T, HEAD, VECTORS>;
    BLOCK_SHARED(Shared, s);
    const int tid = threadIdx.x;
    const long long group_size = heads / kv_heads;
    const int head_groups = static_cast<int>((group_size + heads_per_block - 1) / heads_per_block);
    const int kv_head = blockIdx.y / head_groups;
    const long long first_in_group = blockIdx.y % head_groups * heads_per_block;
    const int block_heads = static_cast<int>(min(heads_per_block, group_size - first_in_group));
    const long long first_head = kv_head * group_size + first_in_group;
    const long long first_row = row_blocks[2 * blockIdx.x];
    const int vectors = static_cast<int>(row_blocks[2 * blockIdx.x + 1]) * block_heads;
    const long long split_start = static_cast<long long>(blockIdx.z) * SPLIT;

    if (tid < vectors) {
        const long long left = row_tokens[first_row + tid / block_heads] - split_start;
        s.visible[tid] = static_cast<int>(left < 0 ? 0 : left < SPLIT ? left : SPLIT);
        s.running_max[tid] = minus_infinity<A>();
        s.running_sum[tid] = A(0);
    }
    __syncthreads();
    int visible = 0;
    for (int v = 0; v < vectors; ++v) visible = max(visible, s.visible[v]);
    if (visible == 0) return;  // the same for every thread

    const long long* table = tables + row_sequence[first_row] * table_width;
    for (int t = tid; t < visible; t += THREADS)
        s.slots[t] = token_slot(table, static_cast<unsigned>(split_start + t), static_cast<unsigned>(block_size));
    for (int i = tid; i < vectors * HEAD; i += THREADS) {
        const int v = i / HEAD;
        const long long row = first_row + v / block_heads, head = first_head + v % block_heads;
        s.query(v)[i % HEAD] = widen(queries[(row * heads + head) * HEAD + i % HEAD]);
    }
    __syncthreads();

    constexpr int GROUPS = value_groups(HEAD);
    constexpr int EACH = VECTORS > GROUPS ? VECTORS / GROUPS : 1;
    const int group = tid / (HEAD / 2), pair = tid % (HEAD / 2);
    const long long slot_width = kv_heads * HEAD;
    const T* head_keys = keys + static_cast<long long>(kv_head) * HEAD;
    const T* head_values = values + static_cast<long long>(kv_head) * HEAD;
    A out[EACH][2] = {};

    // Copies of K and V are separate groups: while one is being used the other is under way.
    load_tile<T, HEAD>(s.keys, head_keys, s.slots, 0, visible, slot_width);
    copy_commit();
    load_tile<T, HEAD>(s.values, head_values, s.slots, 0, visible, slot_width);
    copy_commit();
    for (int first = 0; first < visible; first += Shared::TILE) {
        const int tokens = min(Shared::TILE, visible - first), next = first + Shared::TILE;
        copy_wait<1>();
        __syncthreads();
        score_tile<T, HEAD, VECTORS>(s, vectors, tokens, static_cast<A>(scale));
        __syncthreads();
        load_tile<T, HEAD>(s.keys, head_keys, s.slots, next, visible, slot_width);
        copy_commit();
        softmax_tile<T, HEAD, VECTORS>(s, vectors, first);
        copy_wait<1>();
        __syncthreads();
        if (group < GROUPS) accumulate_tile<T, HEAD, VECTORS, EACH>(s, out, group, pair, vectors, first, tokens);
        __syncthreads();
        load_tile<T, HEAD>(s.values, head_values, s.slots, next, visible, slot_width);
        copy_commit();
    }

#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        const int v = group + GROUPS * j;
        if (group >= GROUPS || v >= vectors || s.visible[v] == 0) continue;
        const long long row = first_row + v / block_heads, head = first_head + v % block_heads;
        const long long place = (row * heads + head) * splits + blockIdx.z;
        partial[place * HEAD + 2 * pair] = out[j][0];
        partial[place * HEAD + 2 * pair + 1] = out[j][1];
        if (pair == 0) {
            partial_state[2 * place] = s.running_max[v];
            partial_state[2 * place + 1] = s.running_sum[v];
        }
    }
}

// grid (rows, heads), THREADS threads. out [rows, heads, head_size]. Always run, also for one split: no second path.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    attention_merge(Read<Acc<T>> partial, Read<Acc<T>> partial_state, Read<long long> row_tokens, Write<T> out,
                    long long heads, long long head_size, long long splits) {
    using A = Acc<T>;
    const long long row = blockIdx.x;
    const long long place = (row * heads + blockIdx.y) * splits;
    const int used = static_cast<int>((row_tokens[row] + SPLIT - 1) / SPLIT);
    A top = minus_infinity<A>();
    for (int i = 0; i < used; ++i) top = larger(top, partial_state[2 * (place + i)]);
    const A base = top == minus_infinity<A>() ? A(0) : top;
    for (long long d = threadIdx.x; d < head_size; d += THREADS) {
        A total = A(0), sum = A(0);
        for (int i = 0; i < used; ++i) {
            const A weight = exponential(partial_state[2 * (place + i)] - base);
            total = fused(partial_state[2 * (place + i) + 1], weight, total);
            sum = fused(partial[(place + i) * head_size + d], weight, sum);
        }
        out[(row * heads + blockIdx.y) * head_size + d] = narrow<T>(total == A(0) ? A(0) : sum / total);
    }
}
