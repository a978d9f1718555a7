"""Did the answers change: token ids, finish reasons, lengths and quality, prompt by matched prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from servegate.facts import PromptFacts, QualityFact, Sample, WorkloadFacts
from servegate.metrics.context import stable
from servegate.metrics.finding import Finding, shortened
from servegate.metrics.matching import Matching


def first_difference(base: Sequence[int], head: Sequence[int]) -> int | None:
    """Position of the first token that differs, or where one of the two ends; None where they are equal."""
    for position, (b, h) in enumerate(zip(base, head, strict=False)):
        if b != h:
            return position
    return None if len(base) == len(head) else min(len(base), len(head))


def token_ids(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """Matched prompts whose free-running token ids differ, except those that part at a near-tie."""
    if not matching.pairs:
        return None
    differing, ties = [], []
    for base_id, b, h in _matched(base, head, matching):
        position = first_difference(b.completion_ids, h.completion_ids)
        if position is None:
            continue
        line = (
            f"prompt {base_id!r} parts at token {position}: "
            f"{_token(b.completion_ids, position)} -> {_token(h.completion_ids, position)}"
        )
        if position in b.near_ties or position in h.near_ties:
            ties.append(f"{line}, a near-tie (best two within 1e-6 nat): not a finding")
        else:
            differing.append(line)
    n = len(matching.pairs)
    note = f"{len(ties)} prompts part at a near-tie" if ties else None
    return Finding(
        base=Sample(value=0.0, n=n),
        head=Sample(value=float(len(differing)), n=n, note=note),
        detail=shortened(differing + ties),
    )


def finish_reasons(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """Answers that ended for another reason: by matched prompt, or where prompts are not kept, by count."""
    if matching.pairs:
        moved = [
            f"prompt {base_id!r}: {b.finish_reason} -> {h.finish_reason}"
            for base_id, b, h in _matched(base, head, matching)
            if b.finish_reason != h.finish_reason
        ]
        n, count, detail = len(matching.pairs), float(len(moved)), shortened(moved)
    elif base.finish_reasons and head.finish_reasons:
        n = sum(head.finish_reasons.values())
        count, detail = stable(_distance(base.finish_reasons, head.finish_reasons) * n), ()
    else:
        return None
    return Finding(
        base=Sample(value=0.0, n=n),
        head=Sample(value=count, n=n),
        base_text=_counts(base.finish_reasons),
        head_text=_counts(head.finish_reasons),
        detail=detail,
    )


def completion_length_shift(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """Sum of |head length - base length| / sum of base lengths, over matched prompts.

    Half of the answers empty and half twice as long leave the mean where it was; this reads 100 %.
    """
    if not matching.pairs:
        return None
    lengths = [
        (base_id, len(b.completion_ids), len(h.completion_ids))
        for base_id, b, h in _matched(base, head, matching)
    ]
    moved = sorted((item for item in lengths if item[1] != item[2]), key=lambda i: -abs(i[2] - i[1]))
    total = max(sum(b for _, b, _ in lengths), 1)
    return Finding(
        base=Sample(value=0.0, n=len(lengths)),
        head=Sample(value=stable(sum(abs(h - b) for _, b, h in moved) / total), n=len(lengths)),
        detail=shortened([f"prompt {prompt_id!r}: {b} -> {h} tokens" for prompt_id, b, h in moved]),
    )


def quality_lost(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """Quality checks that passed on the base and fail on the head."""
    renamed = dict(matching.renamed)
    passed = {(renamed.get(f.prompt_id, f.prompt_id), f.check) for f in base.quality if f.passed}
    known = {(renamed.get(f.prompt_id, f.prompt_id), f.check) for f in base.quality}
    shared = [fact for fact in head.quality if (fact.prompt_id, fact.check) in known]
    if not shared:
        return None
    lost = [fact for fact in shared if not fact.passed and (fact.prompt_id, fact.check) in passed]
    return Finding(
        base=Sample(value=0.0, n=len(shared)),
        head=Sample(value=float(len(lost)), n=len(shared)),
        detail=shortened([_lost(fact) for fact in lost]),
    )


def of_matched_prompts(name: str, prompts: Mapping[str, PromptFacts], ids: Sequence[str]) -> Sample | None:
    """A metric recomputed from the facts of these prompts alone, for arms that do not share all prompts."""
    if not ids:
        return None
    lengths = [len(prompts[i].completion_ids) for i in ids]
    note = f"over the {len(ids)} prompts that both arms have"
    if name == "completion_tokens":
        return Sample(value=float(sum(lengths)), n=len(ids), note=note)
    if name == "completion_tokens_mean":
        return Sample(value=stable(sum(lengths) / len(ids)), n=len(ids), note=note)
    if name == "prompt_tokens":
        return Sample(value=float(sum(prompts[i].prompt_tokens for i in ids)), n=len(ids), note=note)
    return None


def _matched(
    base: WorkloadFacts, head: WorkloadFacts, matching: Matching
) -> Iterator[tuple[str, PromptFacts, PromptFacts]]:
    for base_id, head_id in matching.pairs:
        yield base_id, base.prompts[base_id], head.prompts[head_id]


def _token(ids: Sequence[int], position: int) -> str:
    return str(ids[position]) if position < len(ids) else "end"


def _distance(base: Mapping[str, int], head: Mapping[str, int]) -> float:
    """Total variation between two distributions of finish reasons, 0 to 1."""
    b, h = sum(base.values()), sum(head.values())
    if b == 0 or h == 0:
        return 0.0 if b == h else 1.0
    return sum(abs(base.get(r, 0) / b - head.get(r, 0) / h) for r in {*base, *head}) / 2


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())) or "none"


def _lost(fact: QualityFact) -> str:
    return f"prompt {fact.prompt_id!r}: {fact.check}: {fact.detail}"
