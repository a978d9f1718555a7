"""The verdict as a person reads it in a terminal or a log."""

import json

from servegate.render import json as json_renderer
from servegate.render import terminal
from servegate.verdict import EnvironmentChange, Outcome, State, Verdict


def shown(verdict: Verdict, **options) -> list[str]:
    return terminal.render(verdict, terminal.Style(width=120), **options).splitlines()


def test_headline_first_then_the_reason_then_the_table(row, verdict) -> None:
    lines = shown(verdict(row()))
    assert lines[0] == "FAIL: ttft_p95 50 % slower"
    assert lines[2] == "regressed  latency.ttft_p95: 50 % slower, 10 % is allowed"
    heading = next(line for line in lines if line.startswith("metric"))
    assert heading.split() == ["metric", "base", "head", "change", "tolerance", "verdict"]
    body = next(line for line in lines if line.startswith("latency.ttft_p95"))
    assert body.split("  ")[-1].strip() == "regressed"
    assert "100 ms" in body
    assert "150 ms" in body
    assert "50 % slower" in body


def test_failing_rows_lead_the_table(row, verdict) -> None:
    better = row(metric="e2e_p95", head=5e7, change=-0.5, state=State.IMPROVED)
    lines = shown(verdict(better, row()))
    order = [line.split()[0] for line in lines if line.startswith("latency.")]
    assert order == ["latency.ttft_p95", "latency.e2e_p95"]
    assert "in exchange: latency.e2e_p95 50 % faster" in lines


def test_unchanged_rows_are_counted_and_shown_on_demand(row, verdict) -> None:
    same = row(metric="steps", unit="", base=3.0, head=3.0, change=0.0, state=State.PASS)
    free = row(metric="itl_p50", gating=False, state=State.PASS)
    passing = verdict(same, free, outcome=Outcome.PASS, exit_code=0, headline="PASS: 2 rows")
    assert "2 more rows unchanged or without a rule (-v shows them)" in shown(passing)
    assert not any(line.startswith("latency.") for line in shown(passing))
    assert len([line for line in shown(passing, everything=True) if line.startswith("latency.")]) == 2


def test_rows_that_cannot_be_compared_say_why_once(row, verdict) -> None:
    why = "measured on cpu A, here is cpu B"
    rows = [row(metric=m, state=State.NOT_COMPARABLE, reason=why) for m in ("ttft_p95", "e2e_p95")]
    lines = shown(verdict(*rows, outcome=Outcome.PASS, exit_code=0, headline="PASS"))
    assert f"not comparable  latency.ttft_p95, latency.e2e_p95: {why}" in lines


def test_new_missing_renamed_environment_notes_and_what_next(row, verdict) -> None:
    new = row(
        metric="refund", kind="prompt", base=None, state=State.NEW, gating=False, reason="not in the baseline"
    )
    environment = (EnvironmentChange(group="served", name="block size", base="16", head="8"),)
    told = verdict(row(), new, environment=environment, notes=("baseline is 3 days old",))
    lines = shown(told, follow=terminal.Next(suite="s.yaml", verdict="out/verdict.json"))
    assert "new  latency.refund: not in the baseline" in lines
    assert "  served block size: 16 -> 8" in lines
    assert "note: baseline is 3 days old" in lines
    assert lines[-2].endswith("servegate explain out/verdict.json")
    assert lines[-1].endswith("servegate baseline update s.yaml")


def test_a_pass_is_not_asked_to_accept_anything(row, verdict) -> None:
    passing = verdict(row(state=State.PASS), outcome=Outcome.PASS, exit_code=0, headline="PASS")
    text = "\n".join(shown(passing, follow=terminal.Next(suite="s.yaml", verdict="v.json")))
    assert "explain" in text
    assert "baseline update" not in text


def test_nothing_compared_says_so(verdict) -> None:
    assert "no rows: nothing was compared" in shown(
        verdict(outcome=Outcome.NO_DATA, exit_code=3, headline="NO DATA")
    )


def test_hostile_text_commands_nothing_and_draws_nothing(row, verdict) -> None:
    evil = "\x1b[31m::error::x\r\n::warning::y [/b][red] ##[group]z"
    told = verdict(
        row(metric=evil, base=evil, head=evil * 3, reason=evil, tolerance=evil, detail=(evil, "::notice::n")),
        headline="::error::pwned",
        notes=(evil,),
        environment=(EnvironmentChange(group="served", name=evil, base=evil, head=evil),),
    )
    for width in (40, 60, 80, 120):
        text = terminal.render(told, terminal.Style(width=width), follow=terminal.Next("::a::b", "::c::d"))
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert "\x1b" not in text
        assert "\r" not in text
        assert "##[" not in text
        assert "[/b][red]" in text.replace("\n", "").replace(" ", "")


def test_plain_where_colour_is_off_and_styled_where_it_is_on(row, verdict) -> None:
    assert "\x1b" not in terminal.render(verdict(row()), terminal.Style(colour=False))
    assert "\x1b[" in terminal.render(verdict(row()), terminal.Style(colour=True))


def test_the_environment_does_not_move_the_text(row, verdict, monkeypatch) -> None:
    plain = terminal.render(verdict(row()))
    for name, value in {"TERM": "dumb", "COLUMNS": "20", "FORCE_COLOR": "1", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
        assert terminal.render(verdict(row())) == plain


def test_json_is_the_verdict_itself(row, verdict) -> None:
    told = verdict(row(reason="</script>"))
    text = json_renderer.render(told)
    assert Verdict.model_validate(json.loads(text)) == told


def test_what_no_rule_gates_is_worse_and_never_a_regression(row, verdict) -> None:
    free = row(metric="steps", kind="exact", unit="steps", base=3.0, head=4.0, change=1 / 3, gating=False)
    lines = shown(verdict(free, outcome=Outcome.PASS, exit_code=0, headline="PASS: 1 row"))
    assert "1 more row unchanged or without a rule, 1 of them worse (-v shows them)" in lines
    lines = shown(verdict(free, outcome=Outcome.PASS, exit_code=0, headline="PASS: 1 row"), everything=True)
    assert "regressed" not in "\n".join(lines)
    assert next(line for line in lines if line.startswith("latency.steps")).endswith(
        "none       worse, no rule"
    )


def test_commands_to_copy_are_not_broken(row, verdict) -> None:
    path = "/a/very/long/folder/" * 8 + "servegate.yaml"
    assert any(line.endswith(path) for line in shown(verdict(row()), follow=terminal.Next(suite=path)))


def test_brackets_in_a_name_are_text_and_no_markup(row, verdict) -> None:
    """zen-xu/pytest-modern#63: Rich took ``[fp16]`` for a style and printed nothing."""
    lines = shown(verdict(row(metric="decode[fp16]", reason="[bold]slower[/bold] by half")))
    assert any("latency.decode[fp16]: [bold]slower[/bold] by half" in line for line in lines)
