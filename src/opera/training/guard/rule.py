"""The rule that chooses λ, the share of the fine-tuned weights, from the dev split.

    W(λ) = (1 - λ)·W0 + λ·W1,    λ in SHARES

The rule starts at an anchor that depends on how many of tomorrow's documents training has seen, and climbs from there:

    anchor(s) = .75 where s ≥ .3;  .5 where 0 < s < .3;  .25 where s = 0
    d_q       = m_q(λ') - m_q(λ)              for each dev query q, λ' a neighbour of λ in SHARES
    climb to λ' while mean(d) > Z·std(d)/√n

Neighbouring shares rank most queries alike, so that the standard error of d is a fraction of that of m.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares that are tried on dev: λ = 0 is the untrained model, λ = 1 the fine-tuned one."""

SEEN = 0.3
"""From this share of test pairs with a document that training names, the test documents count as known."""

ANCHOR_SEEN, ANCHOR_MIXED, ANCHOR_NEW = 0.75, 0.5, 0.25
"""Where the climb starts: most documents known; some known; none known."""

Z = 1.0
"""Standard errors by which a neighbour must be better."""


def choose_share(per_query: Mapping[float, NDArray[np.float64]], seen: float) -> float:
    """Choose λ.

    Args:
        per_query: the measure of each dev query, float64 ``[n]``, by share; the keys are :data:`SHARES`.
        seen: share of the test pairs whose document train names, 0 to 1.

    Returns:
        One of the keys.
    """
    shares = sorted(per_query)
    at = shares.index(_anchor(seen))
    while True:
        neighbours = [place for place in (at - 1, at + 1) if 0 <= place < len(shares)]
        scores = {place: _standard_errors(per_query[shares[place]] - per_query[shares[at]]) for place in neighbours}
        best = max(neighbours, key=lambda place: scores[place])
        if scores[best] <= Z:
            return shares[at]
        at = best


def _anchor(seen: float) -> float:
    if seen >= SEEN:
        return ANCHOR_SEEN
    return ANCHOR_MIXED if seen > 0 else ANCHOR_NEW


def _standard_errors(differences: NDArray[np.float64]) -> float:
    """Mean of the differences in standard errors, mean(d)·√n / std(d); 0 where nothing differs."""
    mean = float(differences.mean())
    if mean == 0 or len(differences) < 2:
        return 0.0
    error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    return mean / error if error > 0 else float(np.sign(mean)) * np.inf
