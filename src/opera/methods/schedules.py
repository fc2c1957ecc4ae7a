"""The paper's schedules: how DP's strengths and ratios change over training."""

from __future__ import annotations

import math


def cosine_schedule(start: float, end: float, step: int, max_steps: int) -> float:
    """Equation 6: ``end + (1 + cos(π·t / t_max))·(start - end) / 2``, for α, β and v.

    ``start`` at step 0, ``end`` at ``max_steps`` and after.
    """
    return end + (1 + math.cos(math.pi * min(step, max_steps) / max_steps)) * (start - end) / 2


def virtual_dataset_size(n: int, strength: float, ratio: float) -> int:
    """Algorithm 1: ``n₀ = ⌊n·(1 - r_s)/α_s + r_s·n⌋``, the number of queries in the pool; at least
    1.

    ``strength`` is the *smaller* end of the range of α, so that the reversed schedule keeps r in
    (0, 1) (paper.md, row 3). In the paper's forward schedule that is α_s.
    """
    return max(1, math.floor(n * (1 - ratio) / strength + ratio * n))


def top_ratio(strength: float, pool_size: float, n: int) -> float:
    """Algorithm 1: ``r = (α·n₀ - n) / ((α - 1)·n)``, the share of high-quality queries.

    ``strength`` (α) must exceed 1; at α = 1 sampling is uniform and needs no ratio (paper.md, row
    3).
    """
    return (strength * pool_size - n) / ((strength - 1) * n)
