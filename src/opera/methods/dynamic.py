"""Dynamic pruning (DP): keep everything, and change while training how likely each query and document is drawn."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods._order_statistics.query_ranking import Front, QueryRanking
from opera.methods._order_statistics.sorted_values import SortedValues
from opera.methods.base import Draw, Method, Plan, Probabilities
from opera.methods.draws import (
    ShuffledPasses,
    draw_by_pairs,
    draw_documents,
    draw_pool,
    draw_weighted_documents,
    pool_chances,
)
from opera.methods.finetuning import uniform_documents, uniform_queries
from opera.methods.schedules import cosine_schedule, top_ratio, virtual_dataset_size
from opera.methods.scores import PairScores

NONE, NO_SCORES = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
QueryScore = Literal["negative_loss", "similarity", "loss"]


def query_scores(scores: PairScores, kind: QueryScore) -> NDArray[np.float64]:
    """**q** of Algorithm 1: a score per query, float64 ``[n]``; the highest are "high quality" (paper.md, row 4)."""
    if kind == "similarity":
        return scores.mean_similarity()
    loss = scores.mean_loss()
    return loss if kind == "loss" else -loss


def ranked(pairs: TrainingPairs, scores: PairScores, kind: QueryScore) -> QueryRanking:
    """The queries in the order of :func:`query_scores`, to be kept up to date."""
    values = scores.similarity if kind == "similarity" else scores.loss
    return QueryRanking(pairs, values, -1 if kind == "negative_loss" else 1)


def document_threshold(
    pairs: TrainingPairs, similarity: FloatArray, cutoff: float, over: Literal["global", "per_query"] = "global"
) -> NDArray[np.float64]:
    """Algorithm 1, SampleDocument: the threshold T at cutoff v, the (1 - v) quantile of the similarities ``[N]``.

    Over all pairs (the release; paper.md, row 5), or over each query's own. Quantiles interpolate linearly.

    Returns:
        float64 ``[1]`` or ``[n]``.
    """
    if over == "global":
        return np.asarray([np.quantile(np.asarray(similarity, dtype=np.float64), 1 - cutoff)])
    ascending = np.asarray(similarity, dtype=np.float64)[np.lexsort((similarity, pairs.pair_query))]
    position = (1 - cutoff) * (pairs.positives_per_query - 1)
    below = pairs.query_offsets[:-1] + np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, pairs.query_offsets[1:] - 1)
    return np.asarray(ascending[below] + (position % 1) * (ascending[above] - ascending[below]))


def interpolated_quantile(order: SortedValues, share: float) -> float:
    """The ``share`` quantile of a multiset, linearly interpolated as by :func:`document_threshold`."""
    position = share * (len(order) - 1)
    below = math.floor(position)
    first, second = float(order.kth(below)), float(order.kth(min(below + 1, len(order) - 1)))
    return first + (position % 1) * (second - first)


def document_weights(high_quality: BoolArray, strength: float, soft: bool = True) -> NDArray[np.float64]:
    """Algorithm 1, SampleDocument: ``w = (p > T)·(β - 1) + 1``, from ``p > T`` as bool ``[...]``.

    With ``soft=False`` (the hard-cutoff ablation) w is 1 above the threshold and 0 below.
    """
    high = high_quality.astype(np.float64)
    return high * (strength - 1.0) + 1.0 if soft else high


def document_probabilities(pairs: TrainingPairs, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Equation 5, right: P(d|q) = w / Σ w over the query's documents, float64 ``[N]``; uniform where Σ w is 0."""
    total = pairs.sum_by_query(weight)
    uniform = (total == 0)[pairs.pair_query]
    share = weight / np.where(total == 0, 1, total)[pairs.pair_query]
    return np.asarray(np.where(uniform, uniform_documents(pairs), share), dtype=np.float64)


def query_probabilities(top: FloatArray, count: int, pool_size: int) -> NDArray[np.float64]:
    """Equation 5, left, made to sum to one (paper.md, row 1): float64 ``[n]``.

    A top query is always among the n₀ of the pool: P = 1/n₀. The n₀ - K other places are shared by the n - K
    other queries: P = (n₀ - K) / (n₀·(n - K)), which is 1/(α·n₀) but for rounding K = r·n down.

    Args:
        top: float ``[n]``, each query's chance of being among the top ones: 1 or 0, and between for equal scores.
        count: K.
        pool_size: n₀.
    """
    return pool_chances(top, count, len(top), pool_size) / pool_size


def pair_weighted_probabilities(pairs: TrainingPairs, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Equation 5, left, times m_q: P(q) in proportion to a query's pairs too, as in Equation 3; float64 ``[n]``."""
    weight = uniform * pairs.positives_per_query
    return np.asarray(weight / weight.sum())


class DynamicSettings(Settings):
    """Settings of dp; the defaults are the paper's."""

    alpha_start: float = setting(2.0, "query strength α at the first step", "Appendix C.2", ge=1)
    alpha_end: float = setting(5.0, "query strength α at the last step", "Appendix C.2", ge=1)
    r_start: float = setting(0.25, "share of high-quality queries at the smaller α", "Appendix C.2", gt=0, lt=1)
    beta_start: float = setting(5.0, "document strength β at the first step", "Appendix C.2", ge=1)
    beta_end: float = setting(5.0, "document strength β at the last step", "Appendix C.2", ge=1)
    v_start: float = setting(0.25, "share of high-quality pairs at the first step", "Appendix C.2", gt=0, lt=1)
    v_end: float = setting(0.5, "share of high-quality pairs at the last step", "Appendix C.2", gt=0, lt=1)
    query_score: QueryScore = setting(
        "negative_loss", "what ranks queries: mean over their pairs, highest first", "paper.md, row 4"
    )
    threshold: Literal["global", "per_query"] = setting(
        "global", "document threshold T over all pairs or over each query's own", "the release; paper.md, row 5"
    )
    update_interval: int | Literal["epoch"] = setting(
        1,
        "I_u: steps between two rankings of the queries; epoch is once per n₀ queries",
        "Table 5; paper.md, row 6",
    )
    pool_weighting: Literal["uniform", "pairs"] = setting(
        "uniform",
        "queries of the pool alike, or in proportion to their pairs as sp has it, with replacement",
        "Algorithm 1; pairs: OPERA",
    )
    levels: Literal["both", "query", "document"] = setting("both", "which level DP acts on", "Table 4")
    soft: bool = setting(True, "false excludes documents below T, where a query has some above", "Table 11")


class DynamicPruning(Method[DynamicSettings]):
    """Algorithm 1, with the corrections of docs/paper.md.

    At each refresh (every ``update_interval`` steps) the top queries and the threshold T are found, and the queries of
    the whole interval are drawn from the pool; documents are drawn at every step from the latest similarities, with the
    step's β. Nothing in a step grows with the number of queries or pairs: both thresholds are kept as order statistics,
    and draws look at what they draw alone.
    """

    name = "dp"
    title = "Dynamic pruning"
    settings_class = DynamicSettings
    scores: PairScores

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: DynamicSettings, scores: PairScores | None = None
    ) -> None:
        super().__init__(pairs, plan, settings, scores)
        self.pool_size = virtual_dataset_size(pairs.n_queries, smaller_strength(settings), settings.r_start)
        self._passes = ShuffledPasses(plan.seed, "dp.passes", pairs.n_queries)
        self._on_queries, self._on_documents = settings.levels != "document", settings.levels != "query"
        self._ranking = ranked(pairs, self.scores, settings.query_score) if self._on_queries else None
        self._order = (
            SortedValues(self.scores.similarity) if self._on_documents and settings.threshold == "global" else None
        )
        self._front = Front(0, np.float32(np.inf), 0, 0)
        self._at_refresh: NDArray[np.float32] | None = None  # scores, where so much changes until the next refresh
        self._since_refresh: list[tuple[IntArray, NDArray[np.float32]]] = []
        self._threshold, self._cutoff = math.nan, settings.v_start
        self._queue = np.empty(0, dtype=np.int64)
        self._refreshes = 0

    @classmethod
    def needs_scores(cls, settings: DynamicSettings) -> bool:
        """DP starts from the pretrained model's similarities and losses."""
        return True

    @classmethod
    def check(cls, settings: DynamicSettings, n_queries: int, n_pairs: int) -> None:
        """Refuse a schedule whose r leaves (0, 1), and an update interval below 1."""
        if settings.update_interval != "epoch" and settings.update_interval < 1:
            raise SettingError(f"update_interval: must be 1 or more, or 'epoch', got {settings.update_interval}")
        if settings.pool_weighting == "pairs" and settings.levels == "document":
            raise SettingError("pool_weighting=pairs weighs queries, and levels=document leaves queries alone")
        low, high = sorted((settings.alpha_start, settings.alpha_end))
        if high == 1:
            return
        pool_share = (1 - settings.r_start) / low + settings.r_start
        for strength in (low, high):
            ratio = 1.0 if strength == 1 else top_ratio(strength, pool_share, 1)
            if not 0 < ratio < 1:
                raise SettingError(
                    f"alpha_start={settings.alpha_start}, alpha_end={settings.alpha_end}, r_start={settings.r_start}: "
                    f"at α={strength:g} the share of top queries is r=(α·n₀ - n)/((α - 1)·n)={ratio:.3g} "
                    f"(n₀={pool_share:.3g}·n), which must lie between 0 and 1; "
                    "give both α above 1, or both 1 for uniform queries"
                )

    def draw(self, step: int) -> Draw:
        """SampleQuery, then SampleDocument."""
        if not self._on_queries:
            self._refresh_if_due(step)
            queries = self._passes.take(step * self.plan.batch_size, self.plan.batch_size)
        else:
            queries = self._next_queries(step)
        rng = generator(self.plan.seed, "dp.documents", step)
        if not self._on_documents:
            return Draw.unweighted(draw_documents(rng, self.pairs, queries))
        high, low = document_weights(np.array([True, False]), self._scheduled("beta", step), self.settings.soft)
        threshold = None if self._order is None else self._threshold
        drawn = draw_weighted_documents(
            rng, self.pairs, queries, self.scores.similarity, high, low, threshold, self._cutoff
        )
        return Draw.unweighted(drawn)

    def probabilities(self, step: int) -> Probabilities:
        """Equation 5, for the ranking and the threshold in force at ``step``; looks at every pair."""
        if self._refreshes == 0:
            self._rank(step)
        query, document = uniform_queries(self.pairs), uniform_documents(self.pairs)
        if self._ranking is not None:
            scores = self._ranking.scores() if self._at_refresh is None else self._at_refresh
            for queries, before in reversed(self._since_refresh):
                scores[queries] = before
            query = query_probabilities(self._front.chances(scores), self._front.count, self.pool_size)
            if self.settings.pool_weighting == "pairs":
                query = pair_weighted_probabilities(self.pairs, query)
        if self._on_documents:
            threshold = np.array([self._threshold])
            if self._order is None:
                own = document_threshold(self.pairs, self.scores.similarity, self._cutoff, "per_query")
                threshold = own[self.pairs.pair_query]
            high = np.asarray(self.scores.similarity > threshold)
            weight = document_weights(high, self._scheduled("beta", step), self.settings.soft)
            document = document_probabilities(self.pairs, weight)
        return Probabilities.of(self.pairs, query, document)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Update **q** and **p** from the forward pass."""
        change = self.scores.observe(pair_ids, similarity, loss)
        if self._order is not None:
            self._order.replace(change.old_similarity, change.similarity)
        if self._ranking is not None:
            changed = self._ranking.update(self.pairs.pair_query[change.pairs])
            if self._at_refresh is None:
                self._since_refresh.append(changed)

    @property
    def state_bytes(self) -> int:
        """Bytes held beside the pair arrays."""
        held = self.scores.similarity.nbytes + self.scores.loss.nbytes
        return held + sum(part.nbytes for part in (self._ranking, self._order) if part is not None)

    def schedule(self, step: int) -> dict[str, float]:
        """Return α, r, β, v at ``step``, and the thresholds in force: what ``levels`` and ``threshold`` use of them."""
        values = {}
        if self._on_queries:
            values["alpha"] = self._scheduled("alpha", step)
            values["r"] = self._ratio(values["alpha"])
        if self._on_documents:
            values |= {name: self._scheduled(name, step) for name in ("beta", "v")}
        if self._on_queries:
            values["query_threshold"] = float(self._front.threshold) if self._front.count else math.nan
        if self._order is not None:
            values["document_threshold"] = self._threshold
        return values

    def state_dict(self) -> dict[str, Any]:
        """The scores, the thresholds in force, and the queries drawn but not yet used."""
        front = self._front
        return {
            "scores": self.scores.state_dict(),
            **({} if self._ranking is None else {"ranking": self._ranking.state_dict()}),
            "front": np.array([front.count, front.above, front.tied], dtype=np.int64),
            "query_threshold": front.threshold,
            "threshold": self._threshold,
            "cutoff": self._cutoff,
            "queue": self._queue.copy(),
            "refreshes": self._refreshes,
            **({} if self._at_refresh is None else {"at_refresh": self._at_refresh}),
            "since_queries": np.concatenate([NONE, *(part for part, _ in reversed(self._since_refresh))]),
            "since_scores": np.concatenate([NO_SCORES, *(part for _, part in reversed(self._since_refresh))]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.scores.load_state_dict(state["scores"])
        if self._ranking is not None:
            self._ranking = ranked(self.pairs, self.scores, self.settings.query_score)
            self._ranking.load_state_dict(state["ranking"])
        if self._order is not None:
            self._order = SortedValues(self.scores.similarity)
        count, above, tied = (int(number) for number in state["front"])
        self._front = Front(count, np.float32(state["query_threshold"]), above, tied)
        self._threshold, self._cutoff = float(state["threshold"]), float(state["cutoff"])
        self._queue = np.array(state["queue"], dtype=np.int64)
        self._refreshes = int(state["refreshes"])
        self._at_refresh = np.array(state["at_refresh"]) if "at_refresh" in state else None
        self._since_refresh = [(np.array(state["since_queries"], dtype=np.int64), np.array(state["since_scores"]))]

    def summary(self) -> dict[str, Any]:
        """The pool size n₀ beside the counts."""
        return {**super().summary(), "pool_size": self.pool_size}

    def _scheduled(self, name: str, step: int) -> float:
        start, end = getattr(self.settings, f"{name}_start"), getattr(self.settings, f"{name}_end")
        return cosine_schedule(start, end, step, self.plan.max_steps)

    def _ratio(self, alpha: float) -> float:
        """Return r at strength α, from the whole n₀; all queries are alike at α = 1.

        With a handful of queries, rounding n₀ down can take r below 0: then none is a top query.
        """
        return 0.0 if alpha == 1 else max(0.0, top_ratio(alpha, self.pool_size, self.pairs.n_queries))

    def _rank(self, step: int) -> None:
        """Find the top queries and the threshold T."""
        self._since_refresh = []
        if self._ranking is not None and self.settings.update_interval == "epoch":
            self._at_refresh = self._ranking.scores()
        self._cutoff = self._scheduled("v", step)
        if self._ranking is not None:
            ratio = self._ratio(self._scheduled("alpha", step))
            self._front = self._ranking.front(math.floor(ratio * self.pairs.n_queries))
        if self._order is not None:
            self._threshold = interpolated_quantile(self._order, 1 - self._cutoff)

    def _refresh(self, step: int) -> None:
        self._rank(step)
        assert self._ranking is not None
        interval = self.settings.update_interval
        left = max(1, self.plan.max_steps - step)
        count = self.pool_size if interval == "epoch" else min(interval, left) * self.plan.batch_size
        rng = generator(self.plan.seed, "dp.queries", self._refreshes)
        draw = draw_by_pairs if self.settings.pool_weighting == "pairs" else draw_pool
        self._queue = draw(rng, self._ranking, self._front, self.pool_size, count)
        self._refreshes += 1

    def _next_queries(self, step: int) -> NDArray[np.int64]:
        taken, missing = [], self.plan.batch_size
        while missing:
            if len(self._queue) == 0:
                self._refresh(step)
            taken.append(self._queue[:missing])
            self._queue = self._queue[missing:]
            missing -= len(taken[-1])
        return np.concatenate(taken)

    def _refresh_if_due(self, step: int) -> None:
        """Move T for the document level alone, where queries come from passes."""
        interval = self.settings.update_interval
        steps = max(1, self.pool_size // self.plan.batch_size) if interval == "epoch" else interval
        if step % steps == 0:
            self._rank(step)
            self._refreshes += 1


def smaller_strength(settings: DynamicSettings) -> float:
    """Return the smaller end of the α range, from which n₀ is fixed (paper.md, row 3)."""
    return min(settings.alpha_start, settings.alpha_end)
