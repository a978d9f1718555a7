// The page walk: where a token of a sequence lives in the KV pool.
#pragma once

// `table` lists the physical blocks of one sequence; entries past its last token are -1 and never read.
// The product is 64 bits wide: block * block_size * width overflows 32 bits on a large pool.
__device__ __forceinline__ long long token_slot(const long long* table, unsigned token, unsigned block_size) {
    return table[token / block_size] * static_cast<long long>(block_size) + token % block_size;
}
