"""The verdict for a terminal or a log: plain lines that read well without colour and without a tty."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from servegate.render import commands, words
from servegate.render.escape import clean, defuse
from servegate.render.view import Group, View, allowed, folded_in_words, judged, name, view
from servegate.verdict import Outcome, Row, State, Verdict

_STYLES = {
    State.PASS: "green",
    State.IMPROVED: "bold green",
    State.REGRESSED: "bold red",
    State.INVALID: "bold red",
    State.MISSING: "bold red",
    State.INCONCLUSIVE: "yellow",
    State.NOT_COMPARABLE: "yellow",
    State.NEW: "cyan",
    State.RENAMED: "cyan",
}


@dataclass(frozen=True)
class Style:
    width: int = 120
    colour: bool = False


@dataclass(frozen=True)
class Next:
    """Where the reader can go from here, as paths to type."""

    suite: str | None = None
    """Whose stored baselines could take a change; None where the verdict came from none."""
    verdict: str | None = None


def render(
    verdict: Verdict, style: Style = Style(), *, everything: bool = False, follow: Next = Next()
) -> str:
    """The whole verdict as text that ends in a newline; its first line says it all."""
    seen = view(verdict, everything)
    console = console_for(style)
    console.print(Text(clean(verdict.headline), _headline_style(verdict)))
    _failing(console, seen)
    _table(console, seen.table)
    _counted(console, seen, verdict)
    _asides(console, seen)
    _environment(console, verdict)
    for note in verdict.comparison.notes:
        console.print(Text(f"note: {clean(note)}", "dim"))
    _next_steps(console, verdict, follow)
    return finished(console)


def console_for(style: Style) -> Console:
    """A console into memory that asks the environment nothing: what it prints depends on ``style`` alone."""
    return Console(
        file=io.StringIO(),
        width=style.width,
        height=100,
        force_terminal=style.colour,
        color_system="standard" if style.colour else None,
        no_color=not style.colour,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def finished(console: Console) -> str:
    stream = console.file
    if not isinstance(stream, io.StringIO):
        raise TypeError("not a console of console_for()")
    lines = (line.rstrip() for line in stream.getvalue().split("\n"))
    return defuse("\n".join(lines))


def state_text(row: Row) -> Text:
    return Text(judged(row), _STYLES[row.state] if row.gating else "dim")


def _headline_style(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.PASS:
        return "bold green"
    return "bold yellow" if verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.NO_DATA) else "bold red"


def _failing(console: Console, seen: View) -> None:
    if seen.failing:
        console.print()
    for group in seen.failing:
        _group(console, group, bold=True)


def _group(console: Console, group: Group, *, bold: bool = False) -> None:
    """``state  names: reason``, the details below. A prompt list that passed has no state worth saying."""
    state = Text() if group.state is State.PASS else Text.assemble(state_text(group.rows[0]), "  ")
    names = (clean(group.names, 600), "bold" if bold else "")
    console.print(Text.assemble(state, names, f": {clean(group.reason, 600)}"))
    ids = group.rows[0].kind == "prompt"  # which need no line each
    for detail in [", ".join(group.detail)] if ids and group.detail else group.detail:
        console.print(Padding(Text(clean(detail)), (0, 0, 0, 4)))


def _table(console: Console, rows: tuple[Row, ...]) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("metric", no_wrap=True)
    for heading in ("base", "head"):
        table.add_column(heading, justify="right", overflow="fold", max_width=24)
    for heading in ("change", "tolerance"):
        table.add_column(heading, overflow="fold", min_width=9)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        base, head = words.pair(row.base, row.head, row.unit)
        cells = (base, head, words.change(row), allowed(row))
        table.add_row(Text(clean(name(row), 40)), *(Text(clean(cell, 72)) for cell in cells), state_text(row))
    console.print()
    console.print(table)


def _counted(console: Console, seen: View, verdict: Verdict) -> None:
    console.print()
    if seen.folded:
        console.print(Text(f"{folded_in_words(seen)} (-v shows them)"))
    elif not verdict.comparison.rows:
        console.print(Text("no rows: nothing was compared"))


def _asides(console: Console, seen: View) -> None:
    if seen.better:
        gains = ", ".join(f"{name(row)} {words.change(row)}" for row in seen.better)
        console.print(Text(f"in exchange: {clean(gains, 600)}"))
    for group in seen.asides:
        _group(console, group)


def _environment(console: Console, verdict: Verdict) -> None:
    changes = verdict.comparison.environment
    if not changes:
        return
    console.print(Text("environment, base -> head:"))
    for change in changes:
        line = f"{change.group} {clean(change.name)}: {clean(change.base, 48)} -> {clean(change.head, 48)}"
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def _next_steps(console: Console, verdict: Verdict, follow: Next) -> None:
    """Commands to copy: never broken into two lines."""
    if follow.verdict:
        line = f"look closer:            {clean(commands.explain(follow.verdict), 600)}"
        console.print(Text(line), soft_wrap=True)
    if follow.suite and verdict.outcome in (Outcome.REGRESSED, Outcome.NO_DATA):
        line = f"accept, if it is meant: {clean(commands.accept(follow.suite), 600)}"
        console.print(Text(line), soft_wrap=True)
