// What attention.cu must not be: softmax carried page by page, so that the result depends on the page size.
// One thread a (row, head); the arguments are those of attention_split up to `block_size`.
#include "numeric.cuh"
#include "paging.cuh"

__global__ void block_ordered(const float* queries, const float* keys, const float* values, const long long* table,
                              long long tokens, float* out, long long head_size, long long block_size, double scale) {
    float top = minus_infinity<float>(), sum = 0.0f;
    for (long long d = 0; d < head_size; ++d) out[d] = 0.0f;
    for (long long start = 0; start < tokens; start += block_size) {
        float scores[256], page_top = top;
        const long long count = min(block_size, tokens - start);
        for (long long t = 0; t < count; ++t) {
            const long long slot = token_slot(table, static_cast<unsigned>(start + t), static_cast<unsigned>(block_size));
            float dot = 0.0f;
            for (long long d = 0; d < head_size; ++d) dot = fused(queries[d], keys[slot * head_size + d], dot);
            scores[t] = dot * static_cast<float>(scale);
            page_top = larger(page_top, scores[t]);
        }
        const float rescale = exponential(top - page_top);
        top = page_top;
        sum *= rescale;
        for (long long d = 0; d < head_size; ++d) out[d] *= rescale;
        for (long long t = 0; t < count; ++t) {
            const long long slot = token_slot(table, static_cast<unsigned>(start + t), static_cast<unsigned>(block_size));
            const float weight = exponential(scores[t] - top);
            sum += weight;
            for (long long d = 0; d < head_size; ++d) out[d] = fused(weight, values[slot * head_size + d], out[d]);
        }
    }
    for (long long d = 0; d < head_size; ++d) out[d] /= sum;
}
