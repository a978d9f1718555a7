// Stateless sampling: the noise of a draw is a hash of (seed, position, token id), so that neither the batch nor
// preemption can move it. Gumbel-max: the argmax of logit / T + g over the kept tokens is a draw from their softmax.
//
// The steps are those of the host's sampler, sums in the same order: temperature as (logit - highest) / T, so that no T
// overflows; top-k; top-p over what top-k kept; min-p. Top-k and top-p each keep a prefix of the order of ordering.cuh,
// so together they are one number, how many to keep. Where the host's exp and log differ from these in the last bit, only
// a draw within that bit of a boundary can differ.
#include "ordering.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

constexpr double GREEDY_BELOW = 1e-5;  // temperatures under this are greedy
constexpr int SHORTLIST = 1024;        // the most tokens that top-p sorts
constexpr int LEVELS = 12;             // vocabularies up to THREADS << LEVELS

constexpr long long NOTHING = -1, TOO_WIDE = -2;  // instead of a drawn token

using Bits = unsigned long long;

// u in (0, 1] from the upper 53 bits of a splitmix64-finalised hash (Steele, Lea and Flood, 2014); g = -log(-log(u)).
// The largest of them rounds to u = 1 and g = inf: kept finite.
__device__ __forceinline__ double gumbel_noise(Bits seed, Bits position, Bits token) {
    Bits x = seed * 0x9E3779B97F4A7C15ull + position * 0xBF58476D1CE4E5B9ull + token * 0x94D049BB133111EBull;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
    return fmin(-log(-log((static_cast<double>(x >> 11) + 0.5) * 0x1p-53)), 0x1.fffffffffffffp1023);
}

struct SampleShared {
    Candidate candidates[WARPS];
    int slots[WARPS];
    int counts[THREADS];
    double columns[THREADS];
    double unsorted[SHORTLIST];  // then the prefix sums
    double sorted[SHORTLIST];
};

// How many lower threads counted, and how many all did. Every thread must call it.
struct Ranks {
    int below, all;
};
__device__ __forceinline__ Ranks block_ranks(int mine, int (&counts)[THREADS]) {
    counts[threadIdx.x] = mine;
    __syncthreads();
    Ranks ranks = {0, 0};
    for (int thread = 0; thread < THREADS; ++thread) {
        if (thread < static_cast<int>(threadIdx.x)) ranks.below += counts[thread];
        ranks.all += counts[thread];
    }
    __syncthreads();
    return ranks;
}

// One row of logits (no NaN, no +inf) at its temperature. Every thread of the block must make each call.
template <typename T>
struct Row {
    using Key = decltype(order_key(Acc<T>()));
    const T* logits;
    int vocabulary;
    Acc<T> highest;
    double temperature;

    __device__ Key key(int i) const { return order_key(widen(logits[i])); }
    __device__ double scaled(Acc<T> x) const {
        return (static_cast<double>(x) - static_cast<double>(highest)) / temperature;
    }
    __device__ double scaled_at(int i) const { return scaled(widen(logits[i])); }

    __device__ int count_from(Key lowest, SampleShared& shared) const {
        int count = 0;
        for (int i = threadIdx.x; i < vocabulary; i += THREADS) count += key(i) >= lowest;
        return block_sum<WARPS>(count, shared.slots);
    }

    // The largest key that at least n tokens reach: bisection, one pass over the row a bit.
    __device__ Key nth_largest(int n, SampleShared& shared) const {
        Key low = 1, high = order_key(highest);
        while (low < high) {
            const Key middle = high - (high - low) / 2;
            if (count_from(middle, shared) >= n) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    // shared.sorted = the `width` largest scaled logits, descending. Equal ones have equal weights: ids do not matter.
    __device__ void sort_largest(int width, SampleShared& shared) const {
        const Key least = nth_largest(width, shared);
        int mine = 0;
        for (int i = threadIdx.x; i < vocabulary; i += THREADS) mine += key(i) > least;
        const Ranks ranks = block_ranks(mine, shared.counts);
        int place = ranks.below;
        for (int i = threadIdx.x; i < vocabulary; i += THREADS)
            if (key(i) > least) shared.unsorted[place++] = scaled_at(i);
        __syncthreads();
        for (int i = threadIdx.x; i < width; i += THREADS) {
            if (i >= ranks.all) {
                shared.sorted[i] = scaled(value_of_key(least));
                continue;
            }
            int rank = 0;
            for (int other = 0; other < ranks.all; ++other)
                rank += shared.unsorted[other] > shared.unsorted[i] ||
                        (shared.unsorted[other] == shared.unsorted[i] && other < i);
            shared.sorted[rank] = shared.unsorted[i];
        }
        __syncthreads();
    }

    __device__ int columns(int level) const { return (vocabulary + (1 << level) - 1) >> level; }

    // The mass of the row, added as the host adds it: the right half onto the left, until one column is left. Thread j
    // adds column j of the first level that is no wider than the block: its leaves in order, each pair as it is complete.
    __device__ double halved_mass(SampleShared& shared) const {
        int levels = 0;
        while (columns(levels) > THREADS) ++levels;
        const int thread = threadIdx.x;
        double sum = 0.0, open[LEVELS + 1];
        for (int leaf = 0; thread < columns(levels) && leaf < 1 << levels; ++leaf) {
            int at = thread;
            bool present = true;
            for (int level = levels; level > 0; --level) {
                if (!(leaf >> (level - 1) & 1)) continue;
                at += columns(level);
                present = present && at < columns(level - 1);
            }
            sum = present ? exp(scaled_at(at)) : 0.0;
            bool waiting = false;
#pragma unroll
            for (int level = 0; level <= LEVELS; ++level) {  // unrolled whole, so that `open` stays in registers
                if (waiting) continue;
                waiting = !(leaf >> level & 1);
                if (waiting) open[level] = sum;
                else sum = open[level] + sum;
            }
        }
        shared.columns[thread] = sum;
        __syncthreads();
        for (int width = columns(levels); width > 1; width = (width + 1) / 2) {
            const int half = (width + 1) / 2;
            if (thread < width - half) shared.columns[thread] += shared.columns[thread + half];
            __syncthreads();
        }
        return shared.columns[0];
    }

    // How many of the `limit` most likely tokens hold a share p of their mass: the first prefix that reaches it, its
    // mass added token by token in descending order. More than SHORTLIST: it is longer than that.
    __device__ int nucleus(int limit, double p, SampleShared& shared) const {
        const int width = min(limit, SHORTLIST);
        sort_largest(width, shared);
        double(&mass)[SHORTLIST] = shared.unsorted;
        for (int i = threadIdx.x; i < width; i += THREADS) mass[i] = exp(shared.sorted[i]);
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 1; i < width; ++i) mass[i] = mass[i - 1] + mass[i];
        __syncthreads();
        const double total = limit > width ? halved_mass(shared) : mass[limit - 1];
        int short_of_it = 0;
        for (int i = threadIdx.x; i < width; i += THREADS) short_of_it += mass[i] < p * total;
        return min(limit, 1 + block_sum<WARPS>(short_of_it, shared.slots));
    }
};

// grid (rows). logits [rows, vocabulary], masked tokens -inf; per row: temperature, top_k (0: off), top_p (1: off,
// 0: the best token), floor (the least scaled logit that is kept: log(min_p), -inf: off), seed, position of the token
// being drawn. drawn [rows]: NOTHING where no token can be drawn (all are masked, or one is NaN or +inf), TOO_WIDE where
// top-p would need more than the shortlist.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    sample(Read<T> logits, Read<double> temperatures, Read<long long> top_ks, Read<double> top_ps, Read<double> floors,
           Read<long long> seeds, Read<long long> positions, Write<long long> drawn, long long vocabulary) {
    BLOCK_SHARED(SampleShared, shared);
    const long long row = blockIdx.x;
    const T* x = logits + row * vocabulary;
    const double infinity = -minus_infinity<double>();

    Candidate best = {-infinity, vocabulary};
    for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
        const double value = static_cast<double>(widen(x[i]));
        const Candidate candidate = {value == value ? value : infinity, i};
        if (candidate.value > -infinity && before(candidate, best)) best = candidate;
    }
    best = block_first<WARPS>(best, shared.candidates);
    const bool drawable = best.id < vocabulary && best.value < infinity;
    if (!drawable || temperatures[row] < GREEDY_BELOW) {
        if (threadIdx.x == 0) drawn[row] = drawable ? best.id : NOTHING;
        return;
    }

    const Row<T> tokens = {x, static_cast<int>(vocabulary), static_cast<Acc<T>>(best.value), temperatures[row]};
    const int limit = static_cast<int>(top_ks[row] > 0 && top_ks[row] < vocabulary ? top_ks[row] : vocabulary);
    int count = limit;
    double least = -infinity;  // scaled logits above it are kept, and the first few ids at it
    if (top_ps[row] < 1.0) {
        const bool settled = limit <= SHORTLIST || limit == vocabulary;  // else its mass is not to be had here
        if (settled) count = tokens.nucleus(limit, top_ps[row], shared);
        if (!settled || count > SHORTLIST) {
            if (threadIdx.x == 0) drawn[row] = TOO_WIDE;
            return;
        }
        least = shared.sorted[count - 1];
    } else if (limit < vocabulary) {
        least = tokens.scaled(value_of_key(tokens.nth_largest(limit, shared)));
    }

    // Each thread owns a run of neighbouring ids, so that ties can be counted in the order of the ids.
    const int run = (tokens.vocabulary + THREADS - 1) / THREADS;
    const int first = min(static_cast<int>(threadIdx.x) * run, tokens.vocabulary);
    const int last = min(first + run, tokens.vocabulary);
    int above = 0, ties = 0;
    for (int i = first; i < last; ++i) {
        const double scaled = tokens.scaled_at(i);
        above += scaled > least;
        ties += scaled == least;
    }
    const int ties_kept = count - block_sum<WARPS>(above, shared.slots);
    int rank = block_ranks(ties, shared.counts).below;

    const Bits seed = static_cast<Bits>(seeds[row]), position = static_cast<Bits>(positions[row]);
    Candidate chosen = {-infinity, vocabulary};
    for (int i = first; i < last; ++i) {
        const double scaled = tokens.scaled_at(i);
        if (scaled < least || (scaled == least && rank++ >= ties_kept)) continue;
        if (scaled == -infinity || scaled < floors[row]) continue;
        const Candidate candidate = {scaled + gumbel_noise(seed, position, static_cast<Bits>(i)), i};
        if (before(candidate, chosen)) chosen = candidate;
    }
    chosen = block_first<WARPS>(chosen, shared.candidates);
    if (threadIdx.x == 0) drawn[row] = chosen.id;
}
