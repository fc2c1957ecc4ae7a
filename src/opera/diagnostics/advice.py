"""Which method to take for these data: the default, and what Theorem 1 suggests if labels turn out
to be false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opera.core.arrays import FloatArray
from opera.data.pairs import TrainingPairs
from opera.diagnostics.quality import Quality
from opera.diagnostics.theory import (
    dynamic_share,
    expected_similarity,
)
from opera.methods import DEFAULT_METHOD, DEFAULT_REASON
from opera.methods.dynamic import DynamicSettings
from opera.methods.selection import keep_highest, kept_count

RETENTIONS = (0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05)
LITTLE_NOISE = 0.05
MUCH_NOISE = 0.6
WEAK_SCORES = 0.6
MAX_LOST = 0.1
CHECK = (
    "Look at the hard pairs below: if they are right, this model has yet to learn them, and "
    "leaving them out would lose (docs/results.md, ToolLens)."
)


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
        method: the default of ``opera train``.
        if_labels_false: the method to try instead if the pairs that look random are false indeed;
            ``None``: the same.
        k: its retention rate, for ``sp``.
        reasons: why, a sentence or two each.
    """

    method: str
    if_labels_false: str | None
    k: float | None
    reasons: tuple[str, ...]


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
    """Compute what each k would keep, lose and, by Theorem 1, gain; retention rates that keep
    nothing are left out.
    """
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
    """Return the default method, and what to try if labels are false.

    No estimate overrules the default: what looks like noise to the pretrained model is often
    relevance that it does not see yet, and pruning then loses (docs/results.md, ToolLens). So a
    method that prunes is suggested on a condition that only a look at the pairs can settle:

    - No estimate of noise, noise that cannot be distinguished from 5%, scores that hardly separate
      true pairs from random ones, or more noise than labels have: none, because there is nothing to
      prune by.
    - Otherwise sp, which Theorem 1 ranks above dp and which did best with injected noise. Its k is
      the smallest that keeps the share of pairs that look true and loses at most a tenth of the
      queries; if there is none, dp.
    """
    why: tuple[str, ...] = ()
    if quality.noise is None:
        few = f"Only {quality.pool} documents to rank a pair among"
        why = (f"{few}: too few to say which pairs are hard for this model.",)
    elif quality.noise - 2 * quality.noise_error < LITTLE_NOISE:
        why = ("Few pairs are hard for this model: leaving any out would cost more than it gains.",)
    elif quality.pooled_auc < WEAK_SCORES:
        why = (
            "The similarity of this model hardly separates labelled pairs from random ones "
            f"(AUC {quality.pooled_auc:.2f}): leaving pairs out by it would be almost arbitrary.",
        )
    elif quality.noise > MUCH_NOISE:
        why = (
            "So many labels are rarely wrong. More likely, this model does not see what makes the "
            "pairs relevant: look at them, or inspect with a better model.",
        )
    if why:
        return Advice(DEFAULT_METHOD, None, None, (DEFAULT_REASON, *why))
    candidates = [
        r for r in retentions if r.k >= quality.true_share - 1e-9 and r.lost_queries <= MAX_LOST
    ]
    if not candidates:
        why = (
            CHECK,
            f"Every k that prunes only such pairs loses more than {MAX_LOST:.0%} of the queries; "
            "dp draws them less often and loses no query.",
        )
        return Advice(DEFAULT_METHOD, "dp", None, (DEFAULT_REASON, *why))
    best = min(candidates, key=lambda retention: retention.k)
    lost = f"sp with k = {best.k:g} would lose {best.lost_queries:.1%} of the queries."
    why = (CHECK, lost)
    return Advice(DEFAULT_METHOD, "sp", best.k, (DEFAULT_REASON, *why))
