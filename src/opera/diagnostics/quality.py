"""Label and scoring quality: how well a model separates labelled pairs from random pairs, and the
noise rate that follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.training_pairs.pretrained_scores import CBSRanks

MIN_POOL = 20
"""The noise estimate needs so many random documents in a ranking."""


@dataclass(frozen=True)
class Quality:
    """Quality of labels and scores, estimated from ranks of labelled among random documents.

    Attributes:
        noise: estimated fraction of pairs whose document scores no better than a random document
            (:func:`estimate_noise`); ``None`` if the ranking has too few documents.
        noise_error: standard error of ``noise``, if pairs are independent.
    """

    noise: float | None
    noise_error: float


def relative_rank(cbs_ranks: CBSRanks) -> NDArray[np.float64]:
    """The rank of each pair divided by the number of ranks in its pool: float64 ``[N]`` in (0, 1].

    It is uniform if the document of the pair is random.
    """
    return cbs_ranks.rank / (cbs_ranks.pool + 1.0)


def estimate_noise(cbs_ranks: CBSRanks) -> tuple[float, float]:
    """Estimate the fraction of pairs whose document is no closer to the query than a random one.

    The rank of such a pair is uniform. The rank of a correct pair is in the better half. So the
    noise is the fraction of pairs in the worse half, divided by the fraction of uniform ranks
    there. The estimate is conservative: it tends to be too high (Storey 2002).

    Returns:
        The noise, and its standard error if pairs are independent.
    """
    in_worse_half = relative_rank(cbs_ranks) > 0.5
    n_ranks = cbs_ranks.pool + 1
    expected = float(((n_ranks - n_ranks // 2) / n_ranks).mean())
    fraction = float(in_worse_half.mean())
    error = math.sqrt(fraction * (1 - fraction) / len(in_worse_half)) / expected
    return min(1.0, fraction / expected), error


def estimate_quality(cbs_ranks: CBSRanks) -> Quality:
    """Estimate scoring quality and noise from the ranks of the pairs' documents."""
    noise, error = estimate_noise(cbs_ranks)
    return Quality(
        noise=noise if cbs_ranks.smallest_pool >= MIN_POOL else None,
        noise_error=error,
    )


def most_suspicious(
    relative_ranks: FloatArray, similarity: FloatArray, count: int
) -> NDArray[np.int64]:
    """Return the ids of the pairs with the worst relative ranks, worst first.

    The pair with the lower similarity comes first in a tie.
    """
    return np.lexsort((similarity, -relative_ranks))[:count]
