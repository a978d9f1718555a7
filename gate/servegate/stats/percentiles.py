"""Percentiles that refuse to be guessed from too few samples."""

from collections.abc import Sequence
from math import ceil, isfinite

import numpy as np


def min_samples(q: float) -> int:
    """The fewest samples that carry a percentile: one sample is expected beyond it.

    n >= 1 / min(1 - q/100, q/100): 20 for p95, 100 for p99, 2 for the median. With fewer, the interpolated
    value lies on the extreme sample and is a maximum under another name.

    Raises ValueError unless 0 < q < 100.
    """
    if not 0 < q < 100:
        raise ValueError(f"a percentile lies between 0 and 100, got {q}")
    return ceil(round(100 / min(q, 100 - q), 9))


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile by linear interpolation, in the unit of `values`; None if they are too few.

    With the n values sorted as x[0..n-1], h = (n - 1) q / 100 and k = floor(h), it is
    x[k] + (h - k)(x[k+1] - x[k]): type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages",
    The American Statistician 50 (1996), which is NumPy's default.

    Raises ValueError on NaN or infinite values, and unless 0 < q < 100.
    """
    needed = min_samples(q)
    if not all(isfinite(value) for value in values):
        raise ValueError("a percentile of NaN or infinite values has no meaning")
    if len(values) < needed:
        return None
    return float(np.percentile(np.asarray(values, dtype=float), q))
