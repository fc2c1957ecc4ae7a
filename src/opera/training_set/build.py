"""Build the training set of a run: pairs, negatives, and the base model's scores."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.recipe import Recipe
from opera.core.arrays import BoolArray, FloatArray
from opera.core.settings import resolved
from opera.data import RetrievalData
from opera.data.combined import each_set, first_rows
from opera.data.identity import text_keys
from opera.data.pairs import TrainingPairs, pair_keys
from opera.data.qrels import Qrels
from opera.methods import Method, PairScores
from opera.runs.record import NegativesRecord
from opera.training_set.documents import DocumentPool, KnownPositives, Lists
from opera.training_set.mining import Miner
from opera.training_set.negatives import NegativeInputs, Negatives, build_negatives
from opera.training_set.prepare import Prepared
from opera.training_set.pretrained_scores import pretrained_scores
from opera.training_set.quotas import Quotas, plan_of

log = logging.getLogger("opera")


@dataclass(frozen=True)
class OneSet:
    """A data set of a run, in its own rows.

    Attributes:
        data: its texts and negatives.
        train: its training pairs, with weights.
        pairs: the same, queries numbered from 0.
        first_query: the number of its first training query in the run.
        first_document: the row of its first document in the run.
    """

    data: RetrievalData
    train: Qrels
    pairs: TrainingPairs
    first_query: int
    first_document: int

    @property
    def confirmed(self) -> BoolArray:
        """Which pairs somebody has decided to be correct: bool ``[N of the set]``."""
        none = np.empty(0, dtype=np.int64)
        confirmed = none if self.data.confirmed is None else self.data.confirmed
        return np.asarray(np.isin(text_keys(self.data, self.train), confirmed))

    def known(self, known: KnownPositives) -> KnownPositives:
        """Return the known positives by its own training queries and corpus rows."""
        queries = slice(self.first_query, self.first_query + self.pairs.n_queries)
        documents = slice(self.first_document, self.first_document + len(self.data.corpus))
        return replace(
            known,
            query_group=known.query_group[queries],
            document_group=known.document_group[documents],
        )


@dataclass(frozen=True)
class LabelledPairs:
    """n queries with N positive pairs, set after set where there are several data sets.

    Attributes:
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        grades: int32 ``[N]``, the qrels' grade of each pair.
        weights: float32 ``[N]``, each pair's weight in the data; ``None`` without weights.
        loss_weights: float32 ``[N]``, what the loss of each pair is multiplied by, of mean 1;
            ``None`` for nothing.
        first_pairs: int64 ``[sets + 1]``, where the pairs of each set begin, and where the last
            ends.
        confirmed: bool ``[N]``, the pairs that somebody has decided to be correct; ``None`` without
            decisions.
    """

    query_rows: NDArray[np.int32]
    pairs: TrainingPairs
    grades: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    loss_weights: NDArray[np.float32] | None
    first_pairs: NDArray[np.int64]
    confirmed: BoolArray | None

    @classmethod
    def of(cls, train: Qrels, sets: Sequence[OneSet], use: str) -> LabelledPairs:
        """Return the pairs of all sets; ``use`` says what weights are for."""
        of_loss = None
        if train.weights is not None and use == "loss":
            of_loss = np.concatenate([loss_weights(one.train.weights_or_ones()) for one in sets])
        first_pairs = np.cumsum([0, *(one.pairs.n_pairs for one in sets)])
        pairs = train.pairs()
        confirmed = None
        if any(one.data.confirmed is not None for one in sets):
            confirmed = np.concatenate([one.confirmed for one in sets])
        return cls(
            train.query_rows, pairs, train.grades, train.weights, of_loss, first_pairs, confirmed
        )


@dataclass(frozen=True)
class BaseScores:
    """The scores of the pairs by the base model.

    Attributes:
        sets: those that each set's method starts from; training overwrites them.
        similarity: float32 ``[N]``, a copy of the similarities.
        start: float32 ``[N]``, with ``pair_weights=scores``: what the method ranks or starts by in
            place of the similarities; else ``None``.
        smallest_cbs_pool: fewest documents that a pair was ranked among for its CBS, or ``None``.
    """

    sets: tuple[PairScores, ...]
    similarity: NDArray[np.float32]
    start: NDArray[np.float32] | None
    smallest_cbs_pool: int | None


@dataclass(frozen=True)
class NegativeSources:
    """Where explicit negatives come from, and what is no negative.

    Attributes:
        kind: of the negatives.
        sets: the negatives of each set, by its own training queries and corpus rows.
        known: the same pairs by their texts, what is held out, and documents that have a query's
            own text. With ``prune_before_mining`` only the pairs that the method keeps.
        lists: the negatives that are listed per training query, of all sets; ``None`` where none
            are.
    """

    kind: str
    sets: tuple[Negatives, ...]
    known: KnownPositives
    lists: Lists | None

    @property
    def record(self) -> NegativesRecord:
        """Facts about the negatives for ``run.json``."""
        if self.lists is None:
            return NegativesRecord(kind=self.kind)
        return NegativesRecord(
            kind=self.kind,
            queries_without=self.lists.queries_without,
            listed=len(self.lists.doc_rows),
        )


@dataclass(frozen=True)
class TrainingSet:
    """What a run trains on.

    Attributes:
        data: the data set, for the texts.
        sets: the data sets that it is made of, or itself.
        quotas: how several data sets are drawn; ``None`` for one.
        labelled: the pairs.
        scores: their scores by the base model, where the method needs them.
        negatives: their negatives.
    """

    data: RetrievalData
    sets: tuple[OneSet, ...]
    quotas: Quotas | None
    labelled: LabelledPairs
    scores: BaseScores | None
    negatives: NegativeSources

    @property
    def pairs(self) -> TrainingPairs:
        """The training pairs."""
        return self.labelled.pairs

    @property
    def query_rows(self) -> NDArray[np.int32]:
        """The query table's row of each training query: int32 ``[n]``."""
        return self.labelled.query_rows

    @property
    def text_keys(self) -> NDArray[np.int64]:
        """One number per pair, by its texts: int64 ``[N]``."""
        queries = self.data.query_group[self.query_rows[self.pairs.pair_query]]
        return pair_keys(queries, self.data.document_group[self.pairs.pair_doc])

    @property
    def fingerprint(self) -> int:
        """A number that differs where pairs, scores, weights or listed negatives differ."""
        arrays: list[Any] = [self.pairs.pair_query, self.pairs.pair_doc]
        arrays.append(self.labelled.loss_weights)
        if self.scores is not None:
            arrays += [self.scores.similarity, self.scores.start]
            arrays += [scores.loss for scores in self.scores.sets]
        if (lists := self.negatives.lists) is not None:
            arrays += [lists.counts, lists.doc_rows]
        total = 0
        for array in arrays:
            values = b"" if array is None else np.ascontiguousarray(array).tobytes()
            total = zlib.crc32(values, total)
        return total

    def methods(self, recipe: Recipe, processes: int) -> list[Method[Any]]:
        """Make the method of each set; automatic settings must be resolved.

        Args:
            recipe: names the method, with its settings.
            processes: how many processes train together.
        """
        return _methods(recipe, processes, self.sets, self.quotas, self.scores)


def build_training_set(prepared: Prepared, data: RetrievalData | None = None) -> TrainingSet:
    """Build the training set; encodes queries and corpus where mining or scores need them.

    Scores and negatives of each of several data sets come from its own documents. Scores come
    before negatives: with ``prune_before_mining`` the method first says which pairs it keeps.

    Args:
        prepared: the run.
        data: the version of its data whose train split trains; ``None``: ``drawn``.
    """
    data = prepared.data.drawn if data is None else data
    settings, recipe, processes = prepared.settings, prepared.recipe, prepared.processes
    sets = _sets_of(data)
    labelled = LabelledPairs.of(data.training_split(), sets, settings.pair_weights)
    pairs, quotas = labelled.pairs, None
    if data.sets:
        names, counts = [one.data.name for one in sets], [one.pairs.n_pairs for one in sets]
        quotas = Quotas.of(names, counts, settings)
    known = KnownPositives.of(data, labelled.query_rows, pairs)
    scores = _scores(prepared, sets, known)
    if settings.prune_before_mining:
        methods = _methods(recipe, processes, sets, quotas, scores)
        pruned = ~np.concatenate([method.kept for method in methods])
        known = known.without(pairs.pair_query[pruned], pairs.pair_doc[pruned])
    negatives = _negatives(prepared, sets, known)
    return TrainingSet(data, sets, quotas, labelled, scores, negatives)


def _sets_of(data: RetrievalData) -> tuple[OneSet, ...]:
    """Return the data sets that the data are made of, or the one that they are."""
    sets, first_query = [], 0
    for one, first_document in zip(each_set(data), first_rows(data)[1].tolist(), strict=False):
        train = one.training_split()
        sets.append(OneSet(one, train, train.pairs(), first_query, first_document))
        first_query += train.n_queries
    return tuple(sets)


def _methods(
    recipe: Recipe,
    processes: int,
    sets: Sequence[OneSet],
    quotas: Quotas | None,
    scores: BaseScores | None,
) -> list[Method[Any]]:
    """Make the method of each set, as :meth:`TrainingSet.methods`."""
    plan = plan_of(recipe, processes)
    plans = [plan] if quotas is None else quotas.plans(plan)
    starts = [None] * len(sets) if scores is None else scores.sets
    return [
        recipe.method_class(one.pairs, its_plan, recipe.method_settings, start)
        for one, its_plan, start in zip(sets, plans, starts, strict=True)
    ]


def _scores(prepared: Prepared, sets: Sequence[OneSet], known: KnownPositives) -> BaseScores | None:
    """Compute the base model's scores of each set's pairs, if the method needs any."""
    settings, method = prepared.settings, prepared.recipe.method_class
    if not method.needs_scores(prepared.recipe.method_settings):
        return None
    encoder, text = prepared.model.encoder, settings.corpus_text
    scores, pools = [], []
    for one in sets:
        of_set, pool = pretrained_scores(
            one.pairs,
            encoder.encode_queries(one.data, one.train.query_rows),
            encoder.encode_corpus(one.data, text),
            temperature=resolved(settings.temperature),
            set_size=settings.documents_per_pass(prepared.processes),
            seed=settings.seed,
            known=one.known(known) if settings.mask_known_positives else None,
            pool=DocumentPool.of(one.data, text),
            cbs_pool=method.cbs_pool_size(prepared.recipe.method_settings),
        )
        scores.append(of_set)
        pools += [] if pool is None else [pool]
    similarity, start = np.concatenate([of_set.similarity for of_set in scores]), None
    if settings.pair_weights == "scores":
        for one, of_set in zip(sets, scores, strict=True):
            if one.train.weights is not None:
                of_set.similarity = scores_by_weight(one.train.weights, of_set.similarity)
        start = np.concatenate([of_set.similarity for of_set in scores])
    return BaseScores(tuple(scores), similarity, start, min(pools, default=None))


def _negatives(
    prepared: Prepared, sets: Sequence[OneSet], known: KnownPositives
) -> NegativeSources:
    """Build the negatives of each set, which are no ``known`` positives."""
    settings, encoder, chosen = prepared.settings, prepared.model.encoder, prepared.data.negatives
    sources, lists = [], []
    for one in sets:
        kind, data = chosen, one.data
        if {"given": data.given_negatives, "teacher": data.teacher}.get(kind, data) is None:
            kind = "random"  # another data set has them
        miner = Miner(encoder, data, settings.corpus_text, settings.mining)
        its_known, query_rows = one.known(known), one.train.query_rows
        inputs = NegativeInputs(data, query_rows, one.pairs, its_known, settings, miner)
        sources.append(build_negatives(kind, inputs))
        none = Lists.of([np.empty(0, dtype=np.int32)] * one.pairs.n_queries)
        lists.append(getattr(sources[-1], "lists", none))
    every = None
    if any(hasattr(source, "lists") for source in sources):
        firsts = [np.int32(one.first_document) for one in sets]
        rows = [listed.doc_rows + first for listed, first in zip(lists, firsts, strict=True)]
        counts = np.concatenate([listed.counts for listed in lists])
        every = Lists.from_counts(counts, np.concatenate(rows))
    return NegativeSources(chosen, tuple(sources), known, every)


def loss_weights(weights: FloatArray) -> NDArray[np.float32]:
    """Return what the loss of each pair is multiplied by: the weights over their mean: float32."""
    exact = np.asarray(weights, dtype=np.float64)
    return np.asarray(exact / exact.mean(), dtype=np.float32)


def scores_by_weight(weights: FloatArray, similarity: FloatArray) -> NDArray[np.float32]:
    """Return similarities in the order of the weights, both ``[N]``: float32 ``[N]``.

    The pair with the highest weight gets the highest similarity of the base model, and so on:
    the values keep the scale of the cosines that training observes. Equal weights stay in the order
    of their own similarities.
    """
    ordered = np.empty(len(weights), dtype=np.float32)
    ordered[np.lexsort((similarity, weights))] = np.sort(similarity)
    return ordered
