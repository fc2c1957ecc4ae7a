"""The method and retention rate that Theorem 1 suggests for these data, and what each k would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opera.core.arrays import FloatArray
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect.quality import Quality
from opera.diagnostics.theory import (
    dynamic_share,
    expected_similarity,
    pruning_beats_finetuning,
)
from opera.methods.dynamic import DynamicSettings
from opera.methods.selection import keep_highest, kept_count

RETENTIONS = (0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05)
LITTLE_NOISE = 0.05
MUCH_NOISE = 0.6
WEAK_SCORES = 0.6
MAX_LOST = 0.1


@dataclass(frozen=True)
class Retention:
    """Effect of keeping the share k of the most similar pairs.

    Attributes:
        k: the retention rate.
        kept_pairs: number of kept pairs.
        lost_queries: share of the training queries left without a pair.
        lowest: lowest similarity of a kept pair.
        precision: γ, share of true pairs among the kept ones, if the noise estimate is right.
        gain: E^SP - E^FT of Theorem 1.
    """

    k: float
    kept_pairs: int
    lost_queries: float
    lowest: float
    precision: float
    gain: float


@dataclass(frozen=True)
class Advice:
    """The suggested method.

    Attributes:
        method: ``ft``, ``sp`` or ``dp``.
        k: the retention rate of ``sp``.
        reasons: why, one sentence or two each.
        if_labels_trusted: the method to use instead if the labels are known to be good.
    """

    method: str
    k: float | None
    reasons: tuple[str, ...]
    if_labels_trusted: str | None = None


def precision_above(threshold: float, selected: float, noise: float, random: FloatArray) -> float:
    """γ (or ρ) of Theorem 1: the share of true pairs among those at or above a similarity.

    Noise pairs are taken to reach the threshold as often as random pairs do.

    Args:
        threshold: lowest selected similarity.
        selected: share of all pairs that are selected.
        noise: share of all pairs that are false.
        random: float, similarities of random pairs.
    """
    return float(np.clip(1 - noise * (random >= threshold).mean() / selected, 0, 1))


def retention_table(
    pairs: TrainingPairs, similarity: FloatArray, random: FloatArray, quality: Quality
) -> list[Retention]:
    """Compute what each k would keep, lose and, by Theorem 1, gain; retention rates that keep nothing are left out."""
    finetuned = expected_similarity(quality.true_share, quality.cosine)
    rows = []
    for k in RETENTIONS:
        count = kept_count(pairs.n_pairs, k)
        if count == 0:
            continue
        keep = keep_highest(similarity, count)
        lowest = float(np.asarray(similarity)[keep].min())
        gamma = precision_above(lowest, count / pairs.n_pairs, 1 - quality.true_share, random)
        rows.append(
            Retention(
                k=k,
                kept_pairs=count,
                lost_queries=float((pairs.sum_by_query(keep) == 0).mean()),
                lowest=lowest,
                precision=gamma,
                gain=expected_similarity(gamma, quality.cosine) - finetuned,
            )
        )
    return rows


def dynamic_gain(similarity: FloatArray, random: FloatArray, quality: Quality) -> float:
    """Compute E^DP - E^FT of Theorem 1 for dp's mean v and mean β."""
    defaults = DynamicSettings()
    v, beta = (defaults.v_start + defaults.v_end) / 2, (defaults.beta_start + defaults.beta_end) / 2
    rho = precision_above(float(np.quantile(similarity, 1 - v)), v, 1 - quality.true_share, random)
    share = dynamic_share(rho, v, beta, quality.true_share, 1.0)
    finetuned = expected_similarity(quality.true_share, quality.cosine)
    return expected_similarity(share, quality.cosine) - finetuned


def advise(quality: Quality, retentions: Sequence[Retention]) -> Advice:
    """Choose a method from the estimates.

    - No estimate of noise, noise that cannot be distinguished from 5%, or scores that hardly separate true pairs from
      random ones: ft, because there is nothing to prune by.
    - Most pairs look random: dp, which keeps every pair. More likely than not, the model does not see what makes them
      relevant; on NFCorpus with a small static model, pruning loses (docs/results.md).
    - Otherwise sp, which Theorem 1 ranks above dp and which did best with injected noise. Its k is the smallest that
      keeps the share of pairs that look true and loses at most a tenth of the queries; if there is none, dp.
    """
    if quality.noise is None:
        return _too_few_documents(quality)
    if quality.noise - 2 * quality.noise_error < LITTLE_NOISE:
        return _little_noise(quality)
    if quality.pooled_auc < WEAK_SCORES:
        return _weak_scores(quality)
    if quality.noise > MUCH_NOISE:
        return _much_noise(quality)
    candidates = [r for r in retentions if r.k >= quality.true_share - 1e-9 and r.lost_queries <= MAX_LOST]
    if not candidates:
        return _pruning_loses_queries(quality)
    return _prune(quality, min(candidates, key=lambda r: r.k))


def _look_random(quality: Quality) -> str:
    return f"About {quality.noise:.0%} of the pairs score no better than random ones."


def _too_few_documents(quality: Quality) -> Advice:
    return Advice("ft", None, (f"Only {quality.pool} documents to rank a pair among: too few to estimate noise.",))


def _little_noise(quality: Quality) -> Advice:
    return Advice(
        "ft",
        None,
        (
            f"{_look_random(quality)} That is little noise.",
            "Pruning would cost coverage, and Theorem 1 predicts no gain.",
            "The paper's choice is dp: it keeps every pair and prefers the better ones (docs/results.md has both).",
        ),
    )


def _weak_scores(quality: Quality) -> Advice:
    return Advice(
        "ft",
        None,
        (
            "The similarity of this model hardly separates labelled pairs from random ones "
            f"(AUC {quality.pooled_auc:.2f}).",
            "Pruning by it would be almost arbitrary, and Theorem 1 predicts almost no gain.",
            "Train with ft, or inspect with a better model.",
        ),
    )


def _much_noise(quality: Quality) -> Advice:
    return Advice(
        "dp",
        None,
        (
            _look_random(quality),
            "So many labels are rarely false. More likely, this model does not see what makes the pairs relevant.",
            "Pruning by this model would cost coverage; dp keeps every pair.",
            "Check the suspicious pairs, or inspect with a better model.",
        ),
    )


def _pruning_loses_queries(quality: Quality) -> Advice:
    return Advice(
        "dp",
        None,
        (
            _look_random(quality),
            f"Every k that prunes only such pairs loses more than {MAX_LOST:.0%} of the queries.",
            "dp draws such pairs less often and loses no query.",
        ),
    )


def _prune(quality: Quality, best: Retention) -> Advice:
    verb = "exceeds" if pruning_beats_finetuning(best.precision, quality.true_share) else "does not exceed"
    return Advice(
        "sp",
        best.k,
        (
            f"{_look_random(quality)} The model separates the others well (AUC {quality.pooled_auc:.2f}).",
            f"Keeping k = {best.k:g} of the pairs would lose {best.lost_queries:.1%} of the queries.",
            f"Of the kept pairs, γ = {best.precision:.3f} would be true. This {verb} the {quality.true_share:.3f} of "
            "all pairs (Theorem 1).",
            "At equal precision Theorem 1 ranks sp above dp; the paper's choice is sp+dp.",
            "The estimate cannot separate false labels from relevance that this model does not see yet. Check the "
            "suspicious pairs: if they are right, trust the labels, because pruning would lose (docs/results.md, "
            "ToolLens).",
        ),
        if_labels_trusted="ft",
    )
