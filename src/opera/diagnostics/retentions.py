"""What static pruning would keep, lose and gain, if the pairs that look random are false."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.core.arrays import FloatArray
from opera.data.pairs import TrainingPairs
from opera.diagnostics.quality import Quality
from opera.diagnostics.theory import dynamic_share, expected_similarity
from opera.methods.dynamic import DynamicSettings
from opera.methods.selection import keep_highest, kept_count

RETENTIONS = (0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05)


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
