"""The block pool: holding, freeing, finding a prefix again, and the check that proves it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from servegate_engine.blocks import BlockPool, blocks_for
from servegate_engine.errors import InvariantError


def fill(pool: BlockPool, tokens: list[int]) -> list[int]:
    """A sequence's block table, every full block published."""
    table = pool.allocate(blocks_for(len(tokens), pool.block_size))
    assert table is not None
    for index in range(len(tokens) // pool.block_size):
        pool.publish(table, index, tokens)
    return table


@pytest.mark.parametrize(
    ("tokens", "size", "blocks"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (3, 1, 3)]
)
def test_blocks_for_rounds_up(tokens: int, size: int, blocks: int) -> None:
    assert blocks_for(tokens, size) == blocks


def test_no_room_is_none_and_changes_nothing() -> None:
    pool = BlockPool(3, 4)
    table = pool.allocate(2)
    assert pool.allocate(2) is None
    assert pool.num_free == 1
    pool.check([table or []])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 256])
def test_lookup_finds_whole_blocks_only(size: int) -> None:
    pool = BlockPool(4, size)
    tokens = list(range(3 * size))
    table = fill(pool, tokens)
    assert pool.lookup(tokens, 3 * size) == table
    assert pool.lookup(tokens, 3 * size - 1) == table[:2]
    assert pool.lookup(tokens[: 2 * size] + [99] * size, 3 * size) == table[:2]
    assert pool.lookup([99, *tokens], 3 * size) == []


def test_freed_block_is_found_until_it_is_handed_out() -> None:
    pool = BlockPool(2, 2)
    table = fill(pool, [1, 2, 3, 4])
    pool.free(table)
    assert pool.num_free == 2
    assert pool.lookup([1, 2, 3, 4], 4) == table
    pool.allocate(1)
    assert pool.num_evictions == 1
    assert pool.lookup([1, 2, 3, 4], 4) == table[:1], "the tail goes first"


def test_shared_block_leaves_the_free_list() -> None:
    pool = BlockPool(2, 2)
    pool.free(fill(pool, [1, 2, 3, 4]))
    hits = pool.lookup([1, 2], 2)
    assert pool.num_free_among(hits) == 1
    pool.share(hits)
    assert pool.num_free == 1
    assert pool.num_free_among(hits) == 0
    pool.check([hits])


def test_eviction_takes_the_longest_unused_and_uncached_blocks_before_it() -> None:
    pool = BlockPool(4, 2)
    old, new, scratch = fill(pool, [1, 2]), fill(pool, [3, 4]), pool.allocate(1)
    assert scratch is not None
    pool.free(old)
    pool.free(new)
    pool.free(scratch)
    never_used = 3
    assert [pool.allocate(1) for _ in range(4)] == [scratch, [never_used], old, new]
    assert pool.num_evictions == 2


def test_hit_makes_a_block_young_again() -> None:
    pool = BlockPool(2, 2)
    first, second = fill(pool, [1, 2]), fill(pool, [3, 4])
    pool.free(first)
    pool.free(second)
    pool.share(first)
    pool.free(first)
    assert pool.allocate(1) == second


def test_same_trace_gives_the_same_evictions() -> None:
    """engines.md 13 (mini-sglang): eviction by wall clock cannot be replayed."""

    def trace() -> list[list[int] | None]:
        pool = BlockPool(5, 2)
        handed = []
        for round_ in range(30):
            tokens = [round_ % 3, 1, round_ % 4, 2]
            hits = pool.lookup(tokens, 4)
            pool.share(hits)
            table = hits + (pool.allocate(2 - len(hits)) or [])
            handed.append(list(table))
            for index in range(2):
                pool.publish(table, index, tokens)
            pool.free(table)
        return handed

    assert trace() == trace()


def test_prefix_is_stored_once() -> None:
    """engines.md 6 (sglang#35270): shared pages were counted twice."""
    pool = BlockPool(6, 2)
    first = fill(pool, [1, 2, 3, 4])
    second = fill(pool, [1, 2, 3, 4])
    assert second == first, "the duplicate's table points at the original"
    assert pool.num_used == 2
    pool.check([first, second])
    pool.free(first)
    pool.free(second)
    assert pool.num_free == 6


def test_ids_that_agree_in_their_low_bits_are_different_tokens() -> None:
    """engines.md 8 (vllm-mlx#444): the hash kept 8 bits of each id, 65 and 321 collided."""
    pool = BlockPool(2, 2)
    fill(pool, [65, 66])
    assert pool.lookup([321, 322], 2) == []


def test_hash_collision_is_a_miss() -> None:
    """engines.md 9 (openvino.genai#3722, vllm#11829): equal hashes were taken for equal tokens."""
    far = 2**61 - 1  # Python hashes x and x + far alike
    assert hash((-1, (5, 6))) == hash((-1, (5 + far, 6)))
    pool = BlockPool(2, 2)
    fill(pool, [5, 6])
    assert pool.lookup([5 + far, 6], 2) == []


def test_same_tokens_after_another_prefix_are_another_content() -> None:
    pool = BlockPool(4, 2)
    fill(pool, [1, 2, 7, 8])
    other = fill(pool, [3, 4, 7, 8])
    assert pool.lookup([3, 4, 7, 8], 4) == other


def test_block_behind_a_forgotten_prefix_is_not_published() -> None:
    pool = BlockPool(2, 2)
    table = pool.allocate(2)
    assert table is not None
    pool.publish(table, 0, [1, 2, 3, 4])
    pool.reset_cache()
    pool.publish(table, 1, [1, 2, 3, 4])
    assert pool.tokens_of(table[1]) is None
    pool.check([table])


def test_discarded_blocks_are_not_found_but_shared_ones_stay() -> None:
    pool = BlockPool(3, 2)
    mine = fill(pool, [1, 2, 3, 4])
    theirs = pool.lookup([1, 2], 2)
    pool.share(theirs)
    pool.discard(mine)
    assert pool.lookup([1, 2, 3, 4], 4) == theirs
    pool.check([theirs])


def test_reset_counters_starts_the_peak_at_what_is_held() -> None:
    pool = BlockPool(4, 1)
    table = pool.allocate(3)
    assert table is not None
    pool.free(table[1:])
    pool.reset_counters()
    assert (pool.peak_used, pool.num_evictions) == (1, 0)


def test_freeing_once_too_often_is_an_error() -> None:
    pool = BlockPool(1, 1)
    table = pool.allocate(1)
    assert table is not None
    pool.free(table)
    with pytest.raises(InvariantError, match="freed once too often"):
        pool.free(table)


def drop_reference(pool: BlockPool) -> None:
    pool._refs[0] += 1


def lose_free_block(pool: BlockPool) -> None:
    pool._free.popitem()


def free_held_block(pool: BlockPool) -> None:
    pool._free[0] = None


def swap_cached(pool: BlockPool) -> None:
    first, second = pool._cached
    pool._cached[first], pool._cached[second] = pool._cached[second], pool._cached[first]


def forget_key(pool: BlockPool) -> None:
    pool._keys[0] = None


def forget_entry(pool: BlockPool) -> None:
    del pool._cached[next(iter(pool._cached))]


def repeat_content(pool: BlockPool) -> None:
    pool._contents[1] = pool._contents[0]


@pytest.mark.parametrize(
    ("damage", "report"),
    [
        (drop_reference, "block 0: 2 references, 1 owners"),
        (lose_free_block, "references, free: False"),
        (free_held_block, "block 0: 1 references, free: True"),
        (swap_cached, "block 1: cached under"),
        (forget_key, "holds None"),
        (forget_entry, "which finds block None"),
        (repeat_content, "content 0 is in 2 blocks"),
    ],
)
def test_check_reports_each_kind_of_damage(damage: Callable[[BlockPool], None], report: str) -> None:
    pool = BlockPool(4, 2)
    table = fill(pool, [1, 2, 3, 4])
    pool.check([table])
    damage(pool)
    with pytest.raises(InvariantError, match=report):
        pool.check([table])
