// Log-softmax of one row of logits: the logprob of a given token, and the n most likely tokens with theirs.
// Computed and returned in float64 from logits of any type: the sum's order is fixed and its rounding is out of sight.
#include "ordering.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

struct LogprobShared {
    double slots[WARPS];
    Candidate candidates[WARPS];
};

// grid (rows). logits [rows, vocabulary]; tokens [rows], -1: none (NaN); token_logprobs [rows];
// top_ids, top_logprobs [rows, top]: best first, ties by lower id, -1 and NaN where NaN logits leave too few.
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    log_softmax(const T* logits, const long long* tokens, double* token_logprobs, long long* top_ids, double* top_logprobs,
                long long vocabulary, long long top) {
    BLOCK_SHARED(LogprobShared, shared);
    const long long row = blockIdx.x;
    const T* x = logits + row * vocabulary;
    const double infinity = -minus_infinity<double>();

    double highest = -infinity;
    for (long long i = threadIdx.x; i < vocabulary; i += THREADS) highest = larger(highest, static_cast<double>(widen(x[i])));
    highest = block_max<WARPS>(highest, shared.slots);
    const double base = highest == -infinity ? 0.0 : highest;
    double sum = 0.0;
    for (long long i = threadIdx.x; i < vocabulary; i += THREADS) sum += exp(static_cast<double>(widen(x[i])) - base);
    sum = block_sum<WARPS>(sum, shared.slots);
    const double offset = base + (sum == 0.0 ? 0.0 : log(sum));  // every token masked: all logprobs stay -inf

    if (threadIdx.x == 0) {
        const long long token = tokens[row];
        token_logprobs[row] = token < 0 ? __longlong_as_double(0x7ff8000000000000LL) : widen(x[token]) - offset;
    }
    Candidate last = {infinity, -1};
    for (long long n = 0; n < top; ++n) {
        Candidate mine = {-infinity, vocabulary};  // behind every token
        for (long long i = threadIdx.x; i < vocabulary; i += THREADS) {
            const Candidate candidate = {static_cast<double>(widen(x[i])), i};
            if (before(last, candidate) && before(candidate, mine)) mine = candidate;
        }
        last = block_first<WARPS>(mine, shared.candidates);
        if (threadIdx.x == 0) {
            const bool found = last.id < vocabulary;
            top_ids[row * top + n] = found ? last.id : -1;
            top_logprobs[row * top + n] = found ? last.value - offset : __longlong_as_double(0x7ff8000000000000LL);
        }
    }
}
