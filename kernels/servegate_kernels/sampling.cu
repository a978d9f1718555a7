// Stateless sampling: the noise of a draw is a hash of (seed, position, token id), so that neither the batch nor
// preemption can move it. Gumbel-max: the argmax of logit / T + g over the kept tokens is a draw from their softmax.
//
// Order of the transforms: temperature as (logit - highest) / T, so that no T overflows; top-k; top-p over what top-k
// kept; min-p. Each keeps a prefix of the order of ordering.cuh, so the kept set is one prefix: all values above a
// threshold and the first few ids at it.
#include "ordering.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

constexpr double GREEDY_BELOW = 1e-5;  // temperatures under this are greedy

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

// Maps doubles (no NaN) to integers of the same order, above 0; -0 and 0 to one.
__device__ __forceinline__ Bits order_bits(double value) {
    const Bits bits = static_cast<Bits>(__double_as_longlong(value + 0.0));
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
}

// A prefix of the order: values with bits above `threshold`, and the `ties` lowest ids with bits equal to it.
struct Prefix {
    Bits threshold;
    long long ties;
};

struct SampleShared {
    double slots[WARPS];
    Candidate candidates[WARPS];
    long long tie_counts[THREADS];
};

// One row of logits with its softmax weights exp((x - highest) / T).
template <typename T>
struct Row {
    const T* logits;
    long long vocabulary;
    double highest, temperature;

    __device__ double value(long long i) const { return static_cast<double>(widen(logits[i])); }
    __device__ double scaled(double x) const { return (x - highest) / temperature; }
    __device__ double weight(double x) const { return exp(scaled(x)); }

    // How many tokens (COUNT) or how much weight lies at or above the bits, in a fixed order.
    template <bool COUNT>
    __device__ double measure(Bits lowest, SampleShared& shared) const {
        double total = 0.0;
        for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
            const double x = value(i);
            if (order_bits(x) >= lowest) total += COUNT ? 1.0 : weight(x);
        }
        return block_sum<WARPS>(total, shared.slots);
    }

    // The shortest prefix whose measure reaches `target`: bisection over the bits, then over the ties.
    template <bool COUNT>
    __device__ Prefix shortest(double target, SampleShared& shared) const {
        Bits low = 1, high = order_bits(highest);  // measure(low) reaches the target, measure(high + 1) is 0
        while (low < high) {
            const Bits middle = high - (high - low) / 2;
            if (measure<COUNT>(middle, shared) >= target) low = middle;
            else high = middle - 1;
        }
        double at_threshold = 0.0, unit = 0.0;
        const double above = measure<COUNT>(low + 1, shared);
        for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
            const double x = value(i);
            if (order_bits(x) == low) {
                at_threshold += 1.0;
                unit = COUNT ? 1.0 : weight(x);
            }
        }
        at_threshold = block_sum<WARPS>(at_threshold, shared.slots);
        unit = block_max<WARPS>(unit, shared.slots);
        const double needed = unit > 0.0 ? ceil((target - above) / unit) : at_threshold;
        return {low, static_cast<long long>(fmin(fmax(needed, 1.0), at_threshold))};
    }
};

__device__ __forceinline__ Prefix shorter(Prefix a, Prefix b) {
    if (a.threshold != b.threshold) return a.threshold > b.threshold ? a : b;
    return a.ties < b.ties ? a : b;
}

// grid (rows). logits [rows, vocabulary], masked tokens -inf; per row: temperature, top_k (0: off), top_p (1: off,
// 0: the best token), min_p (0: off), seed, position of the token being drawn. drawn [rows]; -1 where no token can be
// drawn: all are masked, or one is NaN or +inf.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    sample(const T* logits, const double* temperatures, const long long* top_ks, const double* top_ps, const double* min_ps,
           const long long* seeds, const long long* positions, long long* drawn, long long vocabulary) {
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
    const double temperature = temperatures[row];
    const bool drawable = best.id < vocabulary && best.value < infinity;
    if (!drawable || temperature < GREEDY_BELOW) {
        if (threadIdx.x == 0) drawn[row] = drawable ? best.id : -1;
        return;
    }

    const Row<T> tokens = {x, vocabulary, best.value, temperature};
    Prefix kept = {order_bits(-infinity) + 1, vocabulary};
    double mass = -1.0;
    if (top_ks[row] > 0 && top_ks[row] < vocabulary) {
        kept = shorter(kept, tokens.template shortest<true>(static_cast<double>(top_ks[row]), shared));
        double unit = 0.0;
        for (long long i = threadIdx.x; i < vocabulary; i += THREADS)
            if (order_bits(tokens.value(i)) == kept.threshold) unit = tokens.weight(tokens.value(i));
        unit = block_max<WARPS>(unit, shared.slots);
        mass = fused(static_cast<double>(kept.ties), unit, tokens.template measure<false>(kept.threshold + 1, shared));
    }
    if (top_ps[row] < 1.0) {
        if (mass < 0.0) mass = tokens.template measure<false>(kept.threshold, shared);
        kept = shorter(kept, tokens.template shortest<false>(top_ps[row] * mass, shared));
    }
    const double lowest_weight = min_ps[row];

    // Each thread owns a run of neighbouring ids, so that ties can be counted in the order of the ids.
    const long long run = (vocabulary + THREADS - 1) / THREADS;
    const long long first = threadIdx.x * run, last = min(first + run, vocabulary);
    long long ties = 0;
    for (long long i = first; i < last; ++i) ties += order_bits(tokens.value(i)) == kept.threshold;
    shared.tie_counts[threadIdx.x] = ties;
    __syncthreads();
    long long rank = 0;
    for (int thread = 0; thread < static_cast<int>(threadIdx.x); ++thread) rank += shared.tie_counts[thread];

    const Bits seed = static_cast<Bits>(seeds[row]), position = static_cast<Bits>(positions[row]);
    Candidate chosen = {-infinity, vocabulary};
    for (long long i = first; i < last; ++i) {
        const double value = tokens.value(i);
        const Bits bits = order_bits(value);
        if (bits < kept.threshold || (bits == kept.threshold && rank++ >= kept.ties)) continue;
        if (tokens.weight(value) < lowest_weight) continue;
        const double noise = gumbel_noise(seed, position, static_cast<Bits>(i));
        const Candidate candidate = {tokens.scaled(value) + noise, i};
        if (before(candidate, chosen)) chosen = candidate;
    }
    chosen = block_first<WARPS>(chosen, shared.candidates);
    if (threadIdx.x == 0) drawn[row] = chosen.id == vocabulary ? -1 : chosen.id;
}
