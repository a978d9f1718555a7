"""From the blocks of several launches to one change and its interval.

Blocks inside a launch share the luck of that launch: where its memory lies, which arm was started second. So
the interval has two parts. Blocks are ranked (`signedrank`); the spread between launches is estimated from
the same ranks, and the two parts are added. Values may have leading axes: one row for each of many metrics,
or of many simulated runs, measured in the same blocks.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from servegate.stats.launches import Layout
from servegate.stats.signedrank import FloatArray, hodges_lehmann, rank_cut, shift_bounds

# What launches of identical code were measured to add, over ten launches each: an sd of 1.8 % to a p95 whose
# block log-ratio has an sd of 6 %, and 0.7 % to a median with 3 %. So the larger: three tenths of the block
# sd, at most 1.8 %, with the weight of four launches. The launches of the run itself outweigh it as they come
# in.
PRIOR_LAUNCH_SD = 0.018
PRIOR_SHARE_OF_BLOCK_SD = 0.3
PRIOR_WEIGHT = 4


@dataclass(frozen=True)
class Interval:
    """A change on the log scale and its noise, one entry for each row of values.

    `low` and `high` are infinite, and the noise NaN, where there are too few blocks for the level.
    `order_effect` is what starting head second adds, and zero where the order never changed.
    """

    centre: FloatArray
    low: FloatArray
    high: FloatArray
    block_sd: FloatArray
    launch_sd: FloatArray
    order_effect: FloatArray


def interval(
    values: FloatArray, layout: Layout, level: float, same: tuple[FloatArray, Layout] | None = None
) -> Interval:
    """The change over all launches, each end of the interval wrong with a chance of at most `level`.

    1. The start-order effect s, half the difference between the Hodges-Lehmann estimates of the two orders,
       is taken out of every block: d' = d - s or d + s. With both orders present it cancels.
    2. `shift_bounds` of all d' gives the centre and the block part of the interval, [centre - a, centre + b].
    3. The launch part is c = t(df, level) tau sqrt(sum (n_l / n)^2), n_l the blocks of launch l, n their sum.
    4. The interval is [centre - sqrt(a^2 + c^2), centre + sqrt(b^2 + c^2)]: the recovery of variance
       estimates of Howe (1974) and Zou and Donner, Statistics in Medicine 27 (2008), which needs no symmetry
       of the parts.

    tau^2, the variance between launches, is the estimate of `_between`, from these launches and from `same`,
    the base-against-base series of the same run, averaged with the prior above in proportion to their degrees
    of freedom, as in Smyth, Statistical Applications in Genetics 3 (2004); df is the sum of both.
    """
    from scipy.special import stdtrit

    centred, effect = _without_order(values, layout)
    centre, low, high = shift_bounds(centred, level)
    n = values.shape[-1]
    if rank_cut(n, level) < 0:
        unknown = np.full_like(centre, np.nan)
        return Interval(centre, low, high, unknown, unknown, effect)
    block_sd = _block_sd(low, high, n, level)
    between, freedom = _between(centred - centre[..., None], block_sd, layout)
    if same is not None and rank_cut(same[0].shape[-1], level) >= 0:
        reference, _ = _without_order(*same)
        middle, bottom, top = shift_bounds(reference, level)
        reference_sd = _block_sd(bottom, top, reference.shape[-1], level)
        more, extra = _between(reference - middle[..., None], reference_sd, same[1])
        between, freedom = between + more, freedom + extra
    prior = np.minimum(PRIOR_LAUNCH_SD, PRIOR_SHARE_OF_BLOCK_SD * block_sd)
    weight = PRIOR_WEIGHT + freedom
    launch_sd = np.sqrt((PRIOR_WEIGHT * prior**2 + np.maximum(0, between)) / weight)
    counts = np.bincount(layout.launch)
    part = -float(stdtrit(weight, level)) * launch_sd * sqrt(float(counts @ counts)) / n
    return Interval(
        centre,
        centre - np.hypot(centre - low, part),
        centre + np.hypot(high - centre, part),
        block_sd,
        launch_sd,
        effect,
    )


def _without_order(values: FloatArray, layout: Layout) -> tuple[FloatArray, FloatArray]:
    second = layout.order > 0
    if second.all() or not second.any():
        return values, np.zeros(values.shape[:-1])
    effect = (hodges_lehmann(values[..., second]) - hodges_lehmann(values[..., ~second])) / 2
    return values - effect[..., None] * layout.order, effect


def _block_sd(low: FloatArray, high: FloatArray, n: int, level: float) -> FloatArray:
    """The normal sd of one block that would give an interval of this width: half-width sqrt(n) / z(level)."""
    from scipy.special import ndtri

    return (high - low) / 2 / -float(ndtri(level)) * sqrt(n)


def _between(residual: FloatArray, block_sd: FloatArray, layout: Layout) -> tuple[FloatArray, int]:
    """The variance between launches times its degrees of freedom, and those; outliers cannot inflate it.

    Each block's score is sign(x) rank(|x|) / (n + 1), x its residual: bounded, and of variance 1/3 under no
    launch effect. A launch's offset is u_l = sqrt(3) sd mean(score), and the variance is estimated as
    DerSimonian and Laird do (Controlled Clinical Trials 7, 1986), (sum n_l u_l^2 - df sd^2) / (n - sum over
    orders of sum n_l^2 / n_o), with df = launches - start orders. It may be negative; the caller clips after
    pooling. This is the clustered signed-rank statistic of Rosner, Glynn and Lee (Biometrics 62, 2006) turned
    into a variance.
    """
    n = residual.shape[-1]
    rank = np.empty(residual.shape)
    np.put_along_axis(
        rank, np.argsort(np.abs(residual), axis=-1, kind="stable"), np.arange(1.0, n + 1), axis=-1
    )
    score = np.sign(residual) * rank / (n + 1)
    launches, first = np.unique(layout.launch, return_index=True)
    member = (layout.launch[:, None] == launches).astype(float)
    counts = member.sum(axis=0)
    offset = sqrt(3) * block_sd[..., None] * (score @ member) / counts
    head_second = layout.order[first] > 0
    orders = [group for group in (counts[head_second], counts[~head_second]) if group.size]
    freedom = int(launches.size) - len(orders)
    if freedom == 0:
        return np.zeros_like(block_sd), 0
    scale = n - sum(float(group @ group) / float(group.sum()) for group in orders)
    return freedom * (offset**2 @ counts - freedom * block_sd**2) / scale, freedom
