"""What was simulated of arms in turn, as Markdown tables."""

from dataclasses import dataclass

import numpy as np

from calibration.noise import PAIRS, QUIET, ROUGH, ROWS, Flags
from calibration.paired import LOOKS, Outcome
from calibration.peers import PEERS


@dataclass(frozen=True)
class Result:
    """Everything simulated for one noise model: rows without a change, and rows with each true change."""

    quiet: Outcome
    found: dict[float, Outcome]
    peers_quiet: dict[str, Flags]
    peers_found: dict[str, Flags]


def pct(share: float) -> str:
    return f"{100 * share:.2f} %" if 0 < share < 0.01 else f"{100 * share:.1f} %"


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def no_change(results: dict[str, Outcome]) -> str:
    body = [
        [
            name,
            pct(found.suites("regressed")),
            pct(found.share("pass")),
            pct(found.share("improved")),
            pct(found.share("inconclusive")),
            pct(found.suites("inconclusive")),
            f"{found.blocks.mean():.0f}",
            f"{np.median(found.needed):,.0f}" if found.needed else "-",
        ]
        for name, found in results.items()
    ]
    head = ["noise", "suites with a false `regressed`", "rows: pass", "improved", "inconclusive"]
    head += ["suites with an inconclusive row", "mean blocks", "blocks asked for when inconclusive (median)"]
    return table(head, body)


def power(results: dict[str, dict[float, Outcome]]) -> str:
    body = []
    for name, by_change in results.items():
        for change, found in by_change.items():
            curve = [pct(found.found_by(launch)) for launch in LOOKS]
            end = [pct(found.share("pass", "improved")), pct(found.share("inconclusive"))]
            body.append([name, f"+{change:.0%}", *curve, *end])
    looks = [f"found by {launch * PAIRS}" for launch in LOOKS]
    return table(["noise", "true change", *looks, "passed", "inconclusive at 96"], body)


def wanted(quiet: dict[str, Outcome], found: dict[str, dict[float, Outcome]]) -> str:
    def worst(names: tuple[str, ...], change: float, state: str) -> float:
        shares = [found[name][change].share(state) for name in names]
        return min(shares) if state == "regressed" else max(shares)

    figures = [
        (
            "no change, every model: suites `regressed`",
            max(o.suites("regressed") for o in quiet.values()),
            "<=",
            0.005,
        ),
        (
            "no change, sd <= 0.07: rows inconclusive",
            max(quiet[n].share("inconclusive") for n in QUIET),
            "<=",
            0.05,
        ),
        (
            "no change, sd <= 0.07: suites inconclusive",
            max(quiet[n].suites("inconclusive") for n in QUIET),
            "<=",
            0.05,
        ),
        ("+10 %, sd <= 0.07: passes", worst(QUIET, 0.10, "pass"), "<=", 0.0),
        ("+10 %, sd <= 0.07: found", worst(QUIET, 0.10, "regressed"), ">=", 0.95),
        ("+10 %, bursts, two modes, heavy tails: found", worst(ROUGH, 0.10, "regressed"), ">=", 0.90),
        ("+20 %, all of these: found", worst((*QUIET, *ROUGH), 0.20, "regressed"), ">=", 0.99),
    ]
    body = [
        [
            text,
            pct(seen),
            f"{sign} {100 * goal:g} %",
            "yes" if (seen <= goal if sign == "<=" else seen >= goal) else "NO",
        ]
        for text, seen, sign, goal in figures
    ]
    return table(["figure, worst model", "seen", "wanted", "met"], body)


def against_peers(results: dict[str, Result]) -> str:
    body = []
    for name, result in results.items():
        cells = [f"{pct(result.quiet.suites('regressed'))}, {pct(result.found[0.10].share('regressed'))}"]
        for rule in PEERS:
            alarms = float(result.peers_quiet[rule].reshape(-1, ROWS).any(axis=1).mean())
            cells.append(f"{pct(alarms)}, {pct(float(result.peers_found[rule].mean()))}")
        body.append([name, *cells])
    return table(["noise", "servegate", *PEERS], body)
