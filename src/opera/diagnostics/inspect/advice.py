"""Which method and retention rate the theory would advise for data of this quality, and what each k would cost."""

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
MOST_LOST = 0.1


@dataclass(frozen=True)
class Retention:
    """What keeping the share k of the most similar pairs would do.

    Attributes:
        k: the retention rate.
        kept_pairs: how many pairs are kept.
        lost_queries: share of the training queries left without a pair.
        lowest: the lowest similarity that is kept.
        precision: γ, the share of true pairs among those kept, if the estimate of noise is right.
        gain: E^SP - E^FT of Theorem 1 for them.
    """

    k: float
    kept_pairs: int
    lost_queries: float
    lowest: float
    precision: float
    gain: float


@dataclass(frozen=True)
class Advice:
    """What to train with.

    Attributes:
        method: ``ft``, ``sp`` or ``dp``.
        k: the retention rate, for ``sp``.
        if_trusted: the method instead where the labels are known to be good, whatever the model thinks of them.
        reason: why, in sentences.
    """

    method: str
    k: float | None
    reason: str
    if_trusted: str | None = None


def precision_above(threshold: float, selected: float, noise: float, random: FloatArray) -> float:
    """γ (or ρ) of Theorem 1: the share of true pairs among those above a similarity.

    Noise lies above it as often as random pairs do, so ``noise`` times that share of all pairs is false there.

    Args:
        threshold: the lowest similarity selected.
        selected: share of all pairs that is selected.
        noise: share of all pairs that is false.
        random: float, similarities of random pairs.
    """
    return float(np.clip(1 - noise * (random >= threshold).mean() / selected, 0, 1))


def retention_table(
    pairs: TrainingPairs, similarity: FloatArray, random: FloatArray, quality: Quality
) -> list[Retention]:
    """Say what each k would keep, lose and, by the theorem, gain; retention rates that keep nothing are left out."""
    tuned = expected_similarity(quality.true_share, quality.cosine)
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
                gain=expected_similarity(gamma, quality.cosine) - tuned,
            )
        )
    return rows


def dynamic_gain(similarity: FloatArray, random: FloatArray, quality: Quality) -> float:
    """E^DP - E^FT of Theorem 1, at dp's β and the middle of v's schedule."""
    defaults = DynamicSettings()
    v, beta = (defaults.v_start + defaults.v_end) / 2, (defaults.beta_start + defaults.beta_end) / 2
    rho = precision_above(float(np.quantile(similarity, 1 - v)), v, 1 - quality.true_share, random)
    share = dynamic_share(rho, v, beta, quality.true_share, 1.0)
    tuned = expected_similarity(quality.true_share, quality.cosine)
    return expected_similarity(share, quality.cosine) - tuned


def advise(quality: Quality, retentions: Sequence[Retention]) -> Advice:
    """Choose a method.

    No estimate, or so little noise that the estimate cannot tell it from 5%, leaves nothing to prune for: ft. So do
    scores that hardly tell true from random. Where most pairs look random, it is likelier that the model does not see
    what makes them relevant (NFCorpus under a small static model is like that, and pruning loses there;
    docs/results.md): dp, which keeps everything. Otherwise sp, which Theorem 1 puts before dp and which came out best
    with noise put in, with the smallest k that still keeps the share of pairs that look true and loses at most a tenth
    of the queries; dp where there is none.
    """
    true_share = quality.true_share
    if quality.noise is None:
        reason = (
            f"There are only {quality.pool} documents to rank a pair among: too few to estimate noise, "
            "or to prune by it."
        )
        return Advice("ft", None, reason)
    noise, auc = f"{quality.noise:.0%}", f"{quality.pooled_auc:.2f}"
    if quality.noise - 2 * quality.noise_error < LITTLE_NOISE:
        reason = (
            f"About {noise} of the pairs look no better than random: there is little noise to prune, and pruning would "
            "cost coverage. The theorem has nothing to gain here; the paper's choice is dp, which keeps every pair and "
            "prefers the better ones (docs/results.md has both)."
        )
        return Advice("ft", None, reason)
    if quality.pooled_auc < WEAK_SCORES:
        reason = (
            f"This model's similarity hardly tells labelled pairs from random ones (AUC {auc}): what it would prune is "
            "near to arbitrary, and the theorem promises next to nothing. Train with ft, or inspect with a better "
            "model."
        )
        return Advice("ft", None, reason)
    if quality.noise > MUCH_NOISE:
        reason = (
            f"About {noise} of the pairs look no better than random. So many are rarely false: more likely this model "
            "does not see what makes them relevant, and pruning by what it sees would cost coverage. dp keeps every "
            "pair; look at the suspicious ones, or inspect with a better model."
        )
        return Advice("dp", None, reason)
    fitting = [r for r in retentions if r.k >= true_share - 1e-9 and r.lost_queries <= MOST_LOST]
    if not fitting:
        reason = (
            f"About {noise} of the pairs look no better than random, but every k that would remove some of them and "
            f"keep the rest loses more than {MOST_LOST:.0%} of the queries. dp shows such pairs less often and loses "
            "none."
        )
        return Advice("dp", None, reason)
    best = min(fitting, key=lambda r: r.k)
    verb = "exceeds" if pruning_beats_finetuning(best.precision, true_share) else "does not exceed"
    reason = (
        f"About {noise} of the pairs look no better than random, and the model tells the others well (AUC {auc}). "
        f"Keeping k = {best.k:g} of the pairs would leave γ = {best.precision:.3f} of them true, which {verb} the "
        f"{true_share:.3f} of all pairs (Theorem 1), and lose {best.lost_queries:.1%} of the queries. At "
        "equal precision the theorem puts sp before dp; sp+dp is the paper's choice. But the estimate cannot tell "
        "false labels from relevance that this model does not see yet: look at the suspicious pairs. If they are "
        "right, the labels are to be trusted, and pruning would lose (docs/results.md, ToolLens)."
    )
    return Advice("sp", best.k, reason, if_trusted="ft")
