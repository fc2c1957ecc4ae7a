"""Lemma 1 and Theorem 1 (Appendix B): one query, whose labelled documents are partly false positives.

True documents have mean direction μ₁, false ones μ₂, negatives mean 0. The best query embedding under a sampling
strategy is the direction of *share*·μ₁ + (1 - share)·μ₂, where *share* is the probability that a drawn positive is
true; variance is left out, as in the theorem.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import norm


def lemma_value(share: float, cosine: float) -> float:
    """Lemma 1: f(k) = (k·u + (1 - k)·v)ᵀu / ‖k·u + (1 - k)·v‖, for unit vectors u, v with uᵀv = ``cosine``.

    Args:
        share: k, from 0 to 1.
        cosine: uᵀv, above -1 and at most 1.
    """
    return (share + (1 - share) * cosine) / _length(share, cosine)


def lemma_slope(share: float, cosine: float) -> float:
    """Lemma 1: f'(k) = (1 - (uᵀv)²)·(1 - k) / ‖k·u + (1 - k)·v‖³, positive for k below 1 and u ≠ ±v."""
    return (1 - cosine**2) * (1 - share) / _length(share, cosine) ** 3


def _length(share: float, cosine: float) -> float:
    return math.sqrt(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * cosine)


def finetuning_share(true: float, total: float) -> float:
    """Equation 9: m⁺/m, the chance that FT draws a true document."""
    return true / total


def static_share(precision: float) -> float:
    """Equation 10, left: γ, the chance that SP draws a true document from what it kept."""
    return precision


def dynamic_share(precision: float, selected: float, strength: float, true: float, total: float) -> float:
    """Equation 10, right: the chance that DP draws a true document.

    Args:
        precision: ρ, share of the selected documents that are true.
        selected: s, how many are selected.
        strength: β, how much likelier a selected document is drawn than another.
        true: m⁺.
        total: m.

    Returns:
        (ρ·s·(β - 1) + m⁺) / (s·(β - 1) + m).
    """
    return (precision * selected * (strength - 1) + true) / (selected * (strength - 1) + total)


def pruning_beats_finetuning(precision: float, true_share: float) -> bool:
    """Theorem 1, first part (Equation 7): E^SP > E^FT if and only if γ > m⁺/m; the same with ρ for DP."""
    return precision > true_share


def static_beats_dynamic(precision: float, true_share: float) -> bool:
    """Theorem 1, second part (Equation 8), with the condition that its proof needs (paper.md, row 9).

    At equal precision γ = ρ, E^SP > E^DP if and only if γ > m⁺/m: where the scores are worse than chance, DP, which
    follows them only in part, is the better of the two.
    """
    return precision > true_share


def expected_similarity(share: float, cosine: float, length: float = 1.0) -> float:
    """E: expected cosine between the best query embedding and a true document.

    Args:
        share: the chance that a drawn positive is true.
        cosine: μ₁ᵀμ₂.
        length: norm of the true documents' mean, 1 where they all equal μ₁ (see :func:`mean_length`).
    """
    return length * lemma_value(share, cosine)


def mean_length(concentration: float, dimension: int) -> float:
    """Norm of the mean of a von Mises-Fisher distribution on the unit sphere of ``dimension`` dimensions: I_{d/2}(κ) /
    I_{d/2-1}(κ)."""
    return float(ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration))


def selection_precision(true_share: float, auc: float, selected: float) -> float:
    """γ (or ρ): the share of true documents among the best-scored, at a given scoring quality.

    Scores of true documents are N(δ, 1), of false ones N(0, 1), with δ so that a true one outscores a false one with
    probability ``auc``; there are many documents.

    Args:
        true_share: m⁺/m.
        auc: scoring quality between 0 and 1: 0.5 knows nothing, below it scores mislead.
        selected: share of the documents that is selected (SP's k, DP's v).
    """
    if selected >= 1:
        return true_share
    shift = math.sqrt(2) * float(norm.ppf(auc))

    def above(threshold: float) -> float:
        return float(true_share * norm.sf(threshold - shift) + (1 - true_share) * norm.sf(threshold))

    threshold = brentq(lambda t: above(t) - selected, -40 - abs(shift), 40 + abs(shift))
    return float(true_share * norm.sf(threshold - shift) / selected)
