"""The rules of the peers, on the same simulated blocks."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from calibration.noise import BASE, HEAD, LAUNCHES, PAIRS, Array, Flags, Noise, Rng, chunks
from calibration.paired import LIMIT
from servegate.stats.signedrank import shift_interval


def simple_rule(base: Array, head: Array, _: Rng) -> Flags:
    """The simple paired rule: signed-rank interval of all blocks, 0.2 % a look, launches ignored."""
    return np.array([_simple(ratios) for ratios in head - base])


def _simple(ratios: Array) -> bool:
    for count in (10, 15, 20, 25, 30, 40, 50, 60):
        shift = shift_interval(ratios[:count], 0.002)
        if shift.low > LIMIT.log or shift.high < LIMIT.log:
            return shift.low > LIMIT.log
    return False


def mean_above(ratio: float) -> Callable[[Array, Array, Rng], Flags]:
    return lambda base, head, _: np.exp(head).mean(1) / np.exp(base).mean(1) > ratio


def welch(base: Array, head: Array, _: Rng) -> Flags:
    test = stats.ttest_ind(np.exp(head), np.exp(base), axis=1, equal_var=False)
    return np.asarray((test.pvalue < 0.05) & (test.statistic > 0))


def mann_whitney(factor: float) -> Callable[[Array, Array, Rng], Flags]:
    def rule(base: Array, head: Array, _: Rng) -> Flags:
        p = stats.mannwhitneyu(head, base, axis=1, method="asymptotic").pvalue
        return np.asarray((p < 0.002) & (np.median(head, 1) - np.median(base, 1) > np.log(factor)))

    return rule


def criterion(base: Array, head: Array, rng: Rng) -> Flags:
    """The bootstrap interval of the change of the mean, 95 %, wholly above a noise band of 2 %."""
    resamples, (rows, size) = 400, base.shape
    change = np.empty((resamples, rows))
    for k in range(resamples):
        means = [
            np.take_along_axis(np.exp(arm), rng.integers(0, size, (rows, size)), axis=1).mean(1)
            for arm in (base, head)
        ]
        change[k] = means[1] / means[0] - 1
    return np.asarray(np.percentile(change, 2.5, axis=0) > 0.02)


PEERS: dict[str, Callable[[Array, Array, Rng], Flags]] = {
    "pytest-benchmark, mean:5%": mean_above(1.05),
    "github-action-benchmark, ratio 1.10": mean_above(1.10),
    "Welch t, 5 %": welch,
    "Mann-Whitney, 0.2 %": mann_whitney(1.0),
    "asv continuous: Mann-Whitney 0.2 % and factor 1.1": mann_whitney(1.1),
    "criterion: bootstrap 95 %, band 2 %": criterion,
    "simple paired rule, 60 blocks": simple_rule,
}


def peers(noise: Noise, seed: int, rows: int, change: float) -> dict[str, Flags]:
    rng = np.random.default_rng(seed)
    called: dict[str, list[Flags]] = {name: [] for name in PEERS}
    for blocks in chunks(noise, seed, rows, change):
        base, head = (blocks.times[:, :, arm].reshape(-1, LAUNCHES * PAIRS) for arm in (BASE, HEAD))
        for name, rule in PEERS.items():
            called[name].append(rule(base, head, rng))
    return {name: np.concatenate(flags) for name, flags in called.items()}
