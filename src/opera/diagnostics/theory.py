"""Lemma 1 and Theorem 1 (Appendix B): one query with some false positives among its labelled
documents.

True documents have mean direction μ₁, false ones μ₂, negatives mean 0. The best query embedding
under a sampling strategy is the direction of *share*·μ₁ + (1 - share)·μ₂, where *share* is the
probability that a drawn positive is true. Variance is ignored, as in the theorem.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import norm


def lemma_value(share: float, cosine: float) -> float:
    """Lemma 1: f(k) = (k·u + (1 - k)·v)ᵀu / ‖k·u + (1 - k)·v‖, for unit vectors u, v with uᵀv =
    ``cosine``.

    Args:
        share: k, from 0 to 1.
        cosine: uᵀv, above -1 and at most 1.
    """
    return (share + (1 - share) * cosine) / _length(share, cosine)


def lemma_slope(share: float, cosine: float) -> float:
    """Lemma 1: f'(k) = (1 - (uᵀv)²)·(1 - k) / ‖k·u + (1 - k)·v‖³, positive for k below 1 and u ≠
    ±v.
    """
    return (1 - cosine**2) * (1 - share) / _length(share, cosine) ** 3


def _length(share: float, cosine: float) -> float:
    return math.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * cosine)


def finetuning_share(true: float, total: float) -> float:
    """Equation 9: m⁺/m, the probability that FT draws a true document."""
    return true / total


def static_share(precision: float) -> float:
    """Equation 10, left: γ, the probability that SP draws a true document from the kept ones."""
    return precision


def dynamic_share(
    precision: float, selected: float, strength: float, true: float, total: float
) -> float:
    """Equation 10, right: the probability that DP draws a true document.

    Args:
        precision: ρ, share of the selected documents that are true.
        selected: s, number of selected documents.
        strength: β, how many times likelier a selected document is to be drawn than another.
        true: m⁺, number of true documents.
        total: m, number of documents.

    Returns:
        (ρ·s·(β - 1) + m⁺) / (s·(β - 1) + m).
    """
    return (precision * selected * (strength - 1) + true) / (selected * (strength - 1) + total)


def pruning_beats_finetuning(precision: float, true_share: float) -> bool:
    """Theorem 1, first part (Equation 7): E^SP > E^FT if and only if γ > m⁺/m; likewise for DP with
    ρ.
    """
    return precision > true_share


def static_beats_dynamic(precision: float, true_share: float) -> bool:
    """Theorem 1, second part (Equation 8), with the condition that its proof needs (paper.md, row
    9).

    At equal precision γ = ρ, E^SP > E^DP if and only if γ > m⁺/m. If the scores are worse than
    chance, DP is better, because it follows them only in part.
    """
    return precision > true_share


def expected_similarity(share: float, cosine: float, length: float = 1.0) -> float:
    """Compute E, the expected cosine between the best query embedding and a true document.

    Args:
        share: probability that a drawn positive is true.
        cosine: μ₁ᵀμ₂.
        length: norm of the mean true document; 1 if all equal μ₁ (see :func:`mean_length`).
    """
    return length * lemma_value(share, cosine)


def mean_length(concentration: float, dimension: int) -> float:
    """Norm of the mean of a von Mises-Fisher distribution in ``dimension`` dimensions: I_{d/2}(κ) /
    I_{d/2-1}(κ).
    """
    return float(ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration))


def selection_precision(true_share: float, auc: float, selected: float) -> float:
    """Compute γ (or ρ), the share of true documents among the best-scored, for many documents.

    Scores are N(δ, 1) for true documents and N(0, 1) for false ones, with δ such that a true
    document outscores a false one with probability ``auc``.

    Args:
        true_share: m⁺/m.
        auc: scoring quality between 0 and 1; 0.5 is chance, and lower scores mislead.
        selected: share of the documents that are selected (k of SP, v of DP).
    """
    if selected >= 1:
        return true_share
    shift = math.sqrt(2) * float(norm.ppf(auc))

    def above(threshold: float) -> float:
        return float(
            true_share * norm.sf(threshold - shift) + (1 - true_share) * norm.sf(threshold)
        )

    threshold = brentq(lambda t: above(t) - selected, -40 - abs(shift), 40 + abs(shift))
    return float(true_share * norm.sf(threshold - shift) / selected)
