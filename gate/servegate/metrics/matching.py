"""Which prompt of the base is which prompt of the head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servegate.facts import PromptFacts

Prompts = Mapping[str, PromptFacts]


@dataclass(frozen=True)
class Matching:
    """Pairs are (base id, head id), in the order of the base's ids; an id is in exactly one place a side."""

    pairs: tuple[tuple[str, str], ...]
    renamed: tuple[tuple[str, str], ...]
    """Pairs with the same digest under another id."""
    changed: tuple[str, ...]
    """Pairs with the same id and another digest: the prompt's text, messages or template changed."""
    new: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def covers_both(self) -> bool:
        return not self.new and not self.missing


def match_prompts(base: Prompts, head: Prompts) -> Matching:
    """By digest first, then by id.

    Among prompts with one digest the one that kept its id comes first; the rest pair up in the order of ids.
    """
    unpaired = dict(head)
    pairs: dict[str, str] = {}
    for base_id, facts in sorted(base.items()):
        if base_id in unpaired and unpaired[base_id].prompt_digest == facts.prompt_digest:
            del unpaired[base_id]
            pairs[base_id] = base_id
    by_digest: dict[str, list[str]] = {}
    for head_id, facts in sorted(unpaired.items(), reverse=True):
        by_digest.setdefault(facts.prompt_digest, []).append(head_id)
    for base_id, facts in sorted(base.items()):
        if base_id not in pairs and by_digest.get(facts.prompt_digest):
            pairs[base_id] = by_digest[facts.prompt_digest].pop()
            del unpaired[pairs[base_id]]
    renamed = tuple(sorted(pair for pair in pairs.items() if pair[0] != pair[1]))
    changed = tuple(sorted(base_id for base_id in base if base_id not in pairs and base_id in unpaired))
    for base_id in changed:
        pairs[base_id] = base_id
        del unpaired[base_id]
    missing = tuple(sorted(set(base) - set(pairs)))
    return Matching(tuple(sorted(pairs.items())), renamed, changed, tuple(sorted(unpaired)), missing)
