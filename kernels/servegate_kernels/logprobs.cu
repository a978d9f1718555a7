// Log-softmax of one row of logits: the logprob of a given token, the margin of the best over the second, and the n most
// likely tokens with theirs. Computed and returned in float64 from logits of any type: the sum's order is fixed and its
// rounding is out of sight.
#include "ordering.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

struct LogprobShared {
    double slots[WARPS];
    Candidate candidates[WARPS];
};

// grid (rows). logits [rows, vocabulary]; tokens [rows], negative: none (NaN); token_logprobs [rows];
// margins [rows]: inf if only one token is possible, NaN if the row has a NaN or +inf or nothing above -inf;
// top_ids, top_logprobs [rows, top]: best first, ties by lower id, -1 and NaN where NaN logits leave too few.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    log_softmax(Read<T> logits, Read<long long> tokens, Write<double> token_logprobs, Write<double> margins,
                Write<long long> top_ids, Write<double> top_logprobs, long long vocabulary, long long top) {
    BLOCK_SHARED(LogprobShared, shared);
    const long long row = blockIdx.x;
    const T* x = logits + row * vocabulary;
    const double infinity = -minus_infinity<double>(), nan = __longlong_as_double(0x7ff8000000000000LL);
    const Candidate none = {-infinity, vocabulary};  // behind every token

    Candidate best = none;
    for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
        const Candidate candidate = {static_cast<double>(widen(x[i])), i};
        if (before(candidate, best)) best = candidate;
    }
    best = block_first<WARPS>(best, shared.candidates);
    const double base = best.value == -infinity ? 0.0 : best.value;

    double sum = 0.0;
    Candidate second = none;
    for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
        const Candidate candidate = {static_cast<double>(widen(x[i])) - base, i};
        sum += exp(candidate.value);
        if (i != best.id && before(candidate, second)) second = candidate;
    }
    sum = block_sum<WARPS>(sum, shared.slots);
    second = block_first<WARPS>(second, shared.candidates);
    const double log_sum = sum == 0.0 ? 0.0 : log(sum);  // every token masked: all logprobs stay -inf

    if (threadIdx.x == 0) {
        const long long token = tokens[row];
        token_logprobs[row] = token < 0 ? nan : static_cast<double>(widen(x[token])) - base - log_sum;
        margins[row] = sum >= 1.0 ? 0.0 - second.value : nan;  // the best alone adds 1
    }
    Candidate last = {best.value - base, best.id};
    for (long long n = 0; n < top; ++n) {
        if (n == 1) last = second;
        if (n > 1) {
            Candidate mine = none;
            for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
                const Candidate candidate = {static_cast<double>(widen(x[i])) - base, i};
                if (before(last, candidate) && before(candidate, mine)) mine = candidate;
            }
            last = block_first<WARPS>(mine, shared.candidates);
        }
        if (threadIdx.x == 0) {
            const bool found = last.id < vocabulary;
            top_ids[row * top + n] = found ? last.id : -1;
            top_logprobs[row * top + n] = found ? last.value - log_sum : nan;
        }
    }
}
