"""The KV block pool: who holds which block, and which blocks hold a prefix worth finding again.

Blocks are integers; the KV itself lies in the backend. Two ideas carry the file:

* **Free and evictable are one thing.** A block that nobody holds goes to the free list *with* its content.
  Until it is handed out again a prefix lookup can revive it; handing it out is the eviction. The list is
  ordered by release, oldest first, so the order is logical and a replayed trace evicts the same blocks.
* **A prefix is found by comparing token ids.** Each cached content has a number that is never reused, and
  is found under ``(number of the content before it, its own token ids)``. The dictionary compares the ids
  themselves, so two prefixes whose hashes collide cost a little time and never share KV.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from servegate_engine.errors import InvariantError

_ROOT = -1
"""The content number before the first block of every sequence."""

_Key = tuple[int, tuple[int, ...]]


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold the KV of ``num_tokens`` tokens."""
    return -(-num_tokens // block_size)


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens. Not thread-safe: its scheduler is its only caller."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_evictions = 0
        """Cached blocks given up to make room."""
        self.peak_used = 0
        """Most blocks held at once."""
        self._refs = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._keys: list[_Key | None] = [None] * num_blocks
        self._contents: list[int | None] = [None] * num_blocks
        self._cached: dict[_Key, int] = {}
        self._next_content = 0

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds; some may still be found by a prefix lookup."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def num_free_among(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` nobody holds: sharing those takes them out of the free list."""
        return sum(self._refs[block] == 0 for block in blocks)

    def lookup(self, token_ids: Sequence[int], max_tokens: int) -> list[int]:
        """Cached blocks of the longest known prefix of ``token_ids``, at most ``max_tokens`` tokens long.

        Only whole blocks are found. Takes nothing and changes nothing: follow with :meth:`share`.
        """
        found: list[int] = []
        content = _ROOT
        size = self.block_size
        for end in range(size, min(max_tokens, len(token_ids)) + 1, size):
            block = self._cached.get((content, tuple(token_ids[end - size : end])))
            if block is None:
                break
            found.append(block)
            content = self._content(block)
        return found

    def share(self, blocks: Iterable[int]) -> None:
        """Hold cached ``blocks`` once more, reviving those that were free."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._free[block]
            self._refs[block] += 1
        self.peak_used = max(self.peak_used, self.num_used)

    def allocate(self, count: int) -> list[int] | None:
        """``count`` blocks, each held once, or ``None`` (and no change) when so many are not free."""
        if count > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            if self._keys[block] is not None:
                self._uncache(block)
                self.num_evictions += 1
            self._refs[block] = 1
        self.peak_used = max(self.peak_used, self.num_used)
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Give up one hold on each of a sequence's ``blocks``.

        Last block first, so that a prefix outlives what follows it; blocks with no cached content are
        handed out before any that have.
        """
        for block in reversed(blocks):
            if self._refs[block] < 1:
                raise InvariantError(f"block {block} was freed once too often")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free[block] = None
                if self._keys[block] is None:
                    self._free.move_to_end(block, last=False)

    def discard(self, blocks: Sequence[int]) -> None:
        """Like :meth:`free`, for KV that must not be found again: what nobody else holds is forgotten."""
        for block in blocks:
            if self._refs[block] == 1 and self._keys[block] is not None:
                self._uncache(block)
        self.free(blocks)

    def publish(self, table: list[int], index: int, token_ids: Sequence[int]) -> None:
        """Make ``table[index]``, a full block of the sequence ``token_ids``, findable: its KV is written now.

        When another block already holds this very prefix, the table is pointed at that one and the
        duplicate goes free: a prefix is stored once. A block whose predecessor is not findable could not be
        found either, so it stays out.
        """
        parent = _ROOT if index == 0 else self._contents[table[index - 1]]
        if parent is None:
            return
        block = table[index]
        key = (parent, tuple(token_ids[index * self.block_size : (index + 1) * self.block_size]))
        known = self._cached.setdefault(key, block)
        if known != block:
            self.share((known,))
            self.free((block,))
            table[index] = known
            return
        if self._keys[block] is None:
            self._keys[block] = key
            self._contents[block] = self._next_content
            self._next_content += 1

    def reset_counters(self) -> None:
        self.num_evictions = 0
        self.peak_used = self.num_used

    def reset_cache(self) -> None:
        """Forget every cached prefix. Held blocks stay held. Not counted as evictions."""
        for block in list(self._cached.values()):
            self._uncache(block)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Prove the pool's invariants, given the block table of every sequence that holds blocks.

        Raises:
            InvariantError: with every fault found, one to a line.
        """
        owners = Counter(block for table in tables for block in table)
        faults = [
            f"block {block}: {self._refs[block]} references, {owners[block]} owners"
            for block in range(self.num_blocks)
            if self._refs[block] != owners[block]
        ]
        unheld = {block for block in range(self.num_blocks) if self._refs[block] == 0}
        for block in sorted(unheld ^ self._free.keys()):
            faults.append(f"block {block}: {self._refs[block]} references, free: {block in self._free}")
        for key, block in self._cached.items():
            if self._keys[block] != key:
                faults.append(f"block {block}: cached under {key}, holds {self._keys[block]}")
        for block, held in enumerate(self._keys):
            if held is not None and self._cached.get(held) != block:
                faults.append(f"block {block}: holds {held}, which finds block {self._cached.get(held)}")
            if (held is None) != (self._contents[block] is None):
                faults.append(f"block {block}: content {self._contents[block]} with key {held}")
        numbers = Counter(content for content in self._contents if content is not None)
        faults += [f"content {number} is in {count} blocks" for number, count in numbers.items() if count > 1]
        if faults:
            raise InvariantError("block pool:\n" + "\n".join(faults))

    def tokens_of(self, block: int) -> tuple[int, ...] | None:
        """Token ids whose KV the cached ``block`` holds; ``None`` when it is not cached."""
        key = self._keys[block]
        return None if key is None else key[1]

    def _content(self, block: int) -> int:
        content = self._contents[block]
        if content is None:
            raise InvariantError(f"block {block} is cached without a content number")
        return content

    def _uncache(self, block: int) -> None:
        key = self._keys[block]
        if key is None or self._cached.pop(key, None) != block:
            raise InvariantError(f"block {block} holds {key}, which does not lead back to it")
        self._keys[block] = None
        self._contents[block] = None
