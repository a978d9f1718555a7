"""Ordinary tests of a project that serves a model, with a limit on what they cost in time."""

import pytest

HISTORY = [{"role": "user", "content": "a question " * 50}] * 40


def trimmed(messages, budget):
    """The newest messages that fit into ``budget`` characters."""
    kept, used = [], 0
    for message in reversed(messages):
        used += len(message["content"])
        if used > budget:
            break
        kept.append(message)
    return kept[::-1]


@pytest.mark.servegate(change="50%", floor="1ms")
def test_trimming_the_history(servegate):
    assert len(servegate(trimmed, HISTORY, budget=10_000)) == 18
