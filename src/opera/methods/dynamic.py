"""Dynamic pruning (DP): keep all pairs, and change the sampling probabilities during training."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, PairScores, Probabilities
from opera.methods.draws import (
    NOTHING,
    Counts,
    ShuffledPasses,
    TopK,
    bucket_of,
    draw_documents,
    draw_pool,
    draw_weighted_documents,
    upper_edge,
)
from opera.methods.finetuning import uniform_documents, uniform_queries

QueryScore = Literal["negative_loss", "similarity", "loss"]


def cosine_schedule(start: float, end: float, step: int, max_steps: int) -> float:
    """Equation 6: ``end + (1 + cos(π·t / t_max))·(start - end) / 2``, for α, β and v.

    ``start`` at step 0, ``end`` at ``max_steps`` and after.
    """
    return end + (1 + math.cos(math.pi * min(step, max_steps) / max_steps)) * (start - end) / 2


def virtual_dataset_size(n: int, strength: float, ratio: float) -> int:
    """Algorithm 1: ``n₀ = ⌊n·(1 - r_s)/α_s + r_s·n⌋``, the number of queries in the pool, or 1.

    ``strength`` is the *smaller* end of the range of α, so that r stays in (0, 1) with a reversed
    schedule too (erratum 3). In the paper's forward schedule it is α_s.
    """
    return max(1, math.floor(n * (1 - ratio) / strength + ratio * n))


def top_ratio(strength: float, pool_size: float, n: int) -> float:
    """Algorithm 1: ``r = (α·n₀ - n) / ((α - 1)·n)``, the fraction of high-quality queries.

    ``strength`` (α) must be above 1; α = 1 means uniform sampling without a ratio (erratum 3).
    """
    return (strength * pool_size - n) / ((strength - 1) * n)


def query_scores(
    scores: PairScores, kind: QueryScore, queries: IntArray | None = None
) -> NDArray[np.float64]:
    """**q** of Algorithm 1, a score per query; "high quality" means the highest (erratum 4).

    Args:
        scores: the latest scores of each pair.
        kind: a query's score is the mean of this score over its pairs.
        queries: int ``[m]``; by default all.

    Returns:
        float64 ``[m]`` or ``[n]``.
    """
    pairs, values = scores.pairs, scores.similarity if kind == "similarity" else scores.loss
    if queries is None:
        mean = pairs.sum_by_query(values) / pairs.positives_per_query
    else:
        pair_ids, offsets = pairs.of_queries(queries)
        mean = np.add.reduceat(values[pair_ids].astype(np.float64), offsets[:-1]) / np.diff(offsets)
    return -mean if kind == "negative_loss" else mean


def document_threshold(similarities: Counts, cutoff: float) -> int:
    """Algorithm 1, SampleDocument: the threshold T at cutoff v, over all pairs (erratum 5).

    T is the (1 - v) quantile of the similarities p; high quality is p > T. The similarity at rank
    ⌊(1 - v)·(N - 1)⌋ separates the same pairs as T. This returns its bucket.
    """
    return similarities.locate(math.floor((1 - cutoff) * (similarities.size - 1)))[0]


def query_thresholds(query: IntArray, similarity: FloatArray, cutoff: float) -> NDArray[np.float64]:
    """The threshold T of each query (erratum 5): the (1 - v) quantile of its pairs' similarities.

    Args:
        query: int ``[M]``, the query of each pair, in ascending order.
        similarity: ``[M]``.
        cutoff: v.

    Returns:
        float64 ``[M]``, the threshold of each pair's query.
    """
    ascending = np.asarray(similarity, dtype=np.float64)[np.lexsort((similarity, query))]
    _, start, size = np.unique(query, return_index=True, return_counts=True)
    position = (1 - cutoff) * (size - 1)
    below = start + np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, start + size - 1)
    return np.repeat(
        ascending[below] + (position % 1) * (ascending[above] - ascending[below]), size
    )


def document_weights(
    high_quality: BoolArray, strength: float, soft: bool = True
) -> NDArray[np.float64]:
    """Algorithm 1, SampleDocument: ``w = (p > T)·(β - 1) + 1``, from ``p > T`` as bool ``[...]``.

    With ``soft=False`` (the hard-cutoff ablation), w is 1 above the threshold and 0 below.
    """
    high = high_quality.astype(np.float64)
    return high * (strength - 1.0) + 1.0 if soft else high


def document_probabilities(
    pairs: TrainingPairs, weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Equation 5, right: P(d|q) = w / Σ w over the query's documents; uniform if Σ w is 0."""
    total = pairs.sum_by_query(weight)
    uniform = (total == 0)[pairs.pair_query]
    weighted = weight / np.where(total == 0, 1, total)[pairs.pair_query]
    return np.asarray(np.where(uniform, uniform_documents(pairs), weighted), dtype=np.float64)


def query_probabilities(top: FloatArray, count: int, pool_size: int) -> NDArray[np.float64]:
    """Equation 5, left, corrected to sum to one (erratum 1): float64 ``[n]``.

    All K top queries are in the pool of n₀: P = 1/n₀. The n - K other queries share the other
    n₀ - K places: P = (n₀ - K) / (n₀·(n - K)). This is 1/(α·n₀), except that K = r·n is rounded
    down.

    Args:
        top: float ``[n]``, each query's probability to be a top query, between 0 and 1 for ties.
        count: K, the number of top queries.
        pool_size: n₀.
    """
    n = len(top)
    other = (pool_size - count) / (n - count) if n > count else 0.0
    return np.asarray((top + (1 - top) * other) / pool_size, dtype=np.float64)


class DynamicSettings(Settings):
    """Settings of dp; the defaults are the paper's."""

    alpha_start: float = setting(
        2.0, "query strength α at the first step", "Appendix C.2", ge=1, le=1000
    )
    alpha_end: float = setting(
        5.0, "query strength α at the last step", "Appendix C.2", ge=1, le=1000
    )
    r_start: float = setting(
        0.25, "fraction of high-quality queries at the smaller α", "Appendix C.2", gt=0, lt=1
    )
    beta_start: float = setting(
        5.0, "document strength β at the first step", "Appendix C.2", ge=1, le=1000
    )
    beta_end: float = setting(
        5.0, "document strength β at the last step", "Appendix C.2", ge=1, le=1000
    )
    v_start: float = setting(
        0.25, "fraction of high-quality pairs at the first step", "Appendix C.2", gt=0, lt=1
    )
    v_end: float = setting(
        0.5, "fraction of high-quality pairs at the last step", "Appendix C.2", gt=0, lt=1
    )
    query_score: QueryScore = setting(
        "negative_loss",
        "score of the queries: the mean of this score over their pairs, highest first",
        "erratum 4",
    )
    threshold: Literal["global", "per_query"] = setting(
        "global",
        "document threshold T over all pairs, or over the pairs of each query",
        "the release; erratum 5",
    )
    update_interval: Annotated[int, Field(ge=1)] | Literal["epoch"] = setting(
        1,
        "I_u: steps between updates of the top queries and of T (with several data sets, steps "
        "that sample from the set); epoch: once per n₀ queries",
        "Table 5; erratum 6",
    )
    levels: Literal["both", "query", "document"] = setting(
        "both", "level that DP acts on", "Table 4"
    )
    soft: bool = setting(
        True, "false excludes documents below T if the query has documents above T", "Table 11"
    )


class DynamicPruning(Method[DynamicSettings]):
    """Algorithm 1, with the corrections of reproduction/README.md.

    Every ``update_interval`` steps, a refresh finds the top queries and the threshold T. It also
    samples the queries of the interval from the pool. Each step samples documents by the latest
    similarities and its β. The cost of a step hardly grows with the number of queries or pairs:
    both thresholds come from counts, and queries from rejection sampling.

    Attributes:
        pool_size: n₀.
    """

    name = "dp"
    title = "Dynamic pruning"
    settings_class = DynamicSettings
    state: ClassVar[tuple[str, ...]] = ("_threshold", "_cutoff", "_queue", "_refreshes")
    scores: PairScores

    def start(self) -> None:
        """Count the base model's scores; the first draw ranks them."""
        settings, n = self.settings, self.pairs.n_queries
        smaller = min(settings.alpha_start, settings.alpha_end)  # erratum 3
        self.pool_size = virtual_dataset_size(n, smaller, settings.r_start)
        self._count()
        # The result of the last refresh, and its queries that are not used yet.
        self._top, self._threshold, self._cutoff = NOTHING, 0, settings.v_start
        self._queue = np.empty(0, dtype=np.int64)
        self._refreshes = 0
        self._passes = ShuffledPasses(self.plan.seed, "dp.passes", n)  # for levels=document
        # For `probabilities`: scores at the last refresh, of the queries that have changed since.
        self._scores_at_ranking: dict[int, float] = {}

    def _count(self) -> None:
        """Count the scores in buckets, for the levels in use."""
        ranks = self.settings.levels != "document"
        cuts = self.settings.levels != "query" and self.settings.threshold == "global"
        self._qualities = Counts(self._query_scores()) if ranks else None
        self._similarities = Counts(self.scores.similarity) if cuts else None

    @classmethod
    def needs_scores(cls, settings: DynamicSettings) -> bool:
        """Always true."""
        return True

    @classmethod
    def check(cls, settings: DynamicSettings, n_queries: int, n_pairs: int) -> None:
        """Check that r, the fraction of high-quality queries, is in (0, 1) at every step."""
        low, high = sorted((settings.alpha_start, settings.alpha_end))
        if high == 1:
            return
        pool_fraction = (1 - settings.r_start) / low + settings.r_start
        for strength in (low, high):
            ratio = 1.0 if strength == 1 else top_ratio(strength, pool_fraction, 1)
            if not 0 < ratio < 1:
                raise SettingError(
                    f"alpha_start={settings.alpha_start}, alpha_end={settings.alpha_end}, "
                    f"r_start={settings.r_start}: the fraction of top queries, r=(α·n₀ - n)/((α - "
                    f"1)·n) with n₀={pool_fraction:.3g}·n, must be between 0 and 1, got "
                    f"{ratio:.3g} at α={strength:g}; set both α above 1, or both to 1 for uniform "
                    "queries"
                )

    def draw(self, step: int) -> Draw:
        """SampleQuery, then SampleDocument; with ``levels=query`` documents are uniform."""
        queries = self._sample_queries(step)
        rng = generator(self.plan.seed, "dp.documents", step)
        if self.settings.levels == "query":
            return Draw.unweighted(draw_documents(rng, self.pairs, queries))
        return Draw.unweighted(
            draw_weighted_documents(
                rng, self.pairs, queries, lambda pair_ids: self._document_weights(pair_ids, step)
            )
        )

    def probabilities(self, step: int) -> Probabilities:
        """Equation 5 with the current ranking and threshold; reads every pair."""
        if self._refreshes == 0:
            self._find_top_and_threshold(step)
        query, document = uniform_queries(self.pairs), uniform_documents(self.pairs)
        if self._qualities is not None:
            scores = self._query_scores()  # at the last refresh
            scores[list(self._scores_at_ranking)] = list(self._scores_at_ranking.values())
            top = self._top.probabilities(scores)
            query = query_probabilities(top, self._top.count, self.pool_size)
        if self.settings.levels != "query":
            weights = self._document_weights(np.arange(self.pairs.n_pairs), step)
            document = document_probabilities(self.pairs, weights)
        return Probabilities.of(self.pairs, query, document)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Update **q** and **p** from the forward pass."""
        ids, queries = np.unique(pair_ids), np.unique(self.pairs.pair_query[pair_ids])
        old, before = self.scores.similarity[ids], self._query_scores(queries)
        self.scores.observe(pair_ids, similarity, loss)
        if self._similarities is not None:
            self._similarities.move(old, self.scores.similarity[ids])
        if self._qualities is not None:
            self._qualities.move(before, self._query_scores(queries))
            for query, score in zip(queries.tolist(), before.tolist(), strict=True):
                self._scores_at_ranking.setdefault(query, score)

    def schedule(self, step: int) -> dict[str, float]:
        """Return α, r, β and v at ``step`` and the current thresholds, if the settings use them."""
        values = {}
        if self._qualities is not None:
            values["alpha"] = self._scheduled("alpha", step)
            values["r"] = self._ratio(values["alpha"])
        if self.settings.levels != "query":
            values |= {name: self._scheduled(name, step) for name in ("beta", "v")}
        if self._qualities is not None:
            lowest = upper_edge(self._top.bucket - 1)
            values["query_threshold"] = lowest if self._top.count else math.nan
        if self._similarities is not None:
            values["document_threshold"] = upper_edge(self._threshold)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return the scores, the result of the last refresh, and its unused queries."""
        return {
            **super().state_dict(),
            "scores": self.scores.state_dict(),
            "top": np.array(astuple(self._top), dtype=np.int64),
            "changed_queries": np.array(list(self._scores_at_ranking), dtype=np.int64),
            "changed_from": np.array(list(self._scores_at_ranking.values())),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.scores.load_state_dict(state["scores"])
        self._count()
        self._top = TopK(*state["top"].tolist())
        changed = state["changed_queries"].tolist(), state["changed_from"].tolist()
        self._scores_at_ranking = dict(zip(*changed, strict=True))

    def summary(self) -> dict[str, Any]:
        """Add the pool size n₀."""
        return {**super().summary(), "pool_size": self.pool_size}

    def _scheduled(self, name: str, step: int) -> float:
        start, end = getattr(self.settings, f"{name}_start"), getattr(self.settings, f"{name}_end")
        return cosine_schedule(start, end, step, self.plan.max_steps)

    def _ratio(self, alpha: float) -> float:
        """Return r at strength α, from the integer n₀; 0 at α = 1, for uniform sampling.

        With few queries, rounding n₀ down can make r negative; then no query is a top query.
        """
        if alpha == 1:
            return 0.0
        return max(0.0, top_ratio(alpha, self.pool_size, self.pairs.n_queries))

    def _sample_queries(self, step: int) -> NDArray[np.int64]:
        """Algorithm 1, SampleQuery: take the next queries, and refresh if too few are left."""
        size, queries = self.plan.batch_size, self._queue
        while len(queries) < size:
            queries = np.concatenate([queries, self._refresh(step, len(queries))])
        self._queue = queries[size:]
        return queries[:size]

    def _refresh(self, step: int, position: int) -> NDArray[np.int64]:
        """Rank the queries, and sample the queries until the next ranking.

        They come from the pool or, with ``levels=document``, from shuffled passes. ``position`` is
        the number of queries that the step has already.
        """
        self._find_top_and_threshold(step)
        size, interval = self.plan.batch_size, self.settings.update_interval
        if interval != "epoch":
            count = min(interval, max(1, self.plan.max_steps - step)) * size
        elif self._qualities is not None:
            count = self.pool_size
        else:
            count = max(1, self.pool_size // size) * size  # full steps
        rng = generator(self.plan.seed, "dp.queries", self._refreshes)
        self._refreshes += 1
        if self._qualities is None:
            return self._passes.take(step * size + position, count)
        n = self.pairs.n_queries
        return draw_pool(rng, self._query_scores, n, self._top, self.pool_size, count)

    def _find_top_and_threshold(self, step: int) -> None:
        """Find the top ⌊r·n⌋ queries, and the threshold T at cutoff v."""
        self._scores_at_ranking = {}
        self._cutoff = self._scheduled("v", step)
        if self._qualities is not None:
            ratio = self._ratio(self._scheduled("alpha", step))
            self._top = self._qualities.top_k(math.floor(ratio * self.pairs.n_queries))
        if self._similarities is not None:
            self._threshold = document_threshold(self._similarities, self._cutoff)

    def _query_scores(self, queries: IntArray | None = None) -> NDArray[np.float64]:
        return query_scores(self.scores, self.settings.query_score, queries)

    def _document_weights(self, pair_ids: IntArray, step: int) -> NDArray[np.float64]:
        """Return the weights of pairs ``[M]``, which must be all pairs of their queries."""
        similarity = self.scores.similarity[pair_ids]
        if self._similarities is None:
            high = similarity > query_thresholds(
                self.pairs.pair_query[pair_ids], similarity, self._cutoff
            )
        else:
            high = bucket_of(similarity) > self._threshold
        return document_weights(high, self._scheduled("beta", step), self.settings.soft)
