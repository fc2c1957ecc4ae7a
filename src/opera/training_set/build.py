"""Build the training set of a run: pairs, negatives, and the base model's scores."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.arrays import BoolArray, FloatArray
from opera.core.settings import resolved
from opera.data import RetrievalData
from opera.data.combined import each_set, first_rows
from opera.data.pairs import TrainingPairs, pair_keys
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
class LabelledPairs:
    """n queries with N positive pairs, set after set where there are several data sets.

    Attributes:
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        grades: int32 ``[N]``, the qrels' grade of each pair.
        weights: float32 ``[N]``, each pair's weight in the data; ``None`` without weights.
        loss_weights: float32 ``[N]``, what the loss of each pair is multiplied by, of mean 1;
            ``None`` for nothing.
        first_queries: int64 ``[sets + 1]``, where the training queries of each set begin, and where
            the last ends.
    """

    query_rows: NDArray[np.int32]
    pairs: TrainingPairs
    grades: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    loss_weights: NDArray[np.float32] | None
    first_queries: NDArray[np.int64]

    @property
    def first_pairs(self) -> NDArray[np.int64]:
        """Where the pairs of each set begin, and where the last ends: int64 ``[sets + 1]``."""
        return self.pairs.query_offsets[self.first_queries]


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
        first_documents: int64 ``[sets + 1]``, where the documents of each set begin.
        known: the same pairs by their texts, what is held out, and documents that have a query's
            own text. With ``prune_before_mining`` only the pairs that the method keeps.
        lists: the negatives that are listed per training query, of all sets; ``None`` where none
            are.
        pruned_positives: how many listed negatives were pruned as positives of their query, among
            those of queries with a pair kept; ``None`` without ``prune_before_mining``, or without
            lists.
    """

    kind: str
    sets: tuple[Negatives, ...]
    first_documents: NDArray[np.int64]
    known: KnownPositives
    lists: Lists | None
    pruned_positives: int | None

    @property
    def record(self) -> NegativesRecord:
        """Facts about the negatives for ``run.json``."""
        if self.lists is None:
            return NegativesRecord(kind=self.kind)
        return NegativesRecord(
            kind=self.kind,
            queries_without=self.lists.queries_without,
            listed=len(self.lists.doc_rows),
            pruned_positives=self.pruned_positives,
        )


@dataclass(frozen=True)
class TrainingSet:
    """What a run trains on.

    Attributes:
        data: the data set, for the texts.
        labelled: the pairs.
        negatives: their negatives.
        scores: their scores by the base model, where the method needs them.
        quotas: how several data sets are drawn; ``None`` for one.
    """

    data: RetrievalData
    labelled: LabelledPairs
    negatives: NegativeSources
    scores: BaseScores | None
    quotas: Quotas | None

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
        plan, sets = plan_of(recipe, processes), _pairs_of_sets(self.labelled)
        plans = [plan] if self.quotas is None else self.quotas.plans(plan)
        scores = [None] * len(sets) if self.scores is None else self.scores.sets
        return [
            recipe.method_class(pairs, its_plan, recipe.method_settings, its_scores)
            for pairs, its_plan, its_scores in zip(sets, plans, scores, strict=True)
        ]


def _pairs_of_sets(labelled: LabelledPairs) -> list[TrainingPairs]:
    """Return the pairs of each set, its queries numbered from 0; documents keep their rows."""
    if len(labelled.first_queries) == 2:
        return [labelled.pairs]
    pairs = labelled.pairs
    return [
        TrainingPairs.from_arrays(
            pairs.pair_query[first:end] - pairs.pair_query[first], pairs.pair_doc[first:end]
        )
        for first, end in pairwise(labelled.first_pairs.tolist())
    ]


def build_training_set(prepared: Prepared, data: RetrievalData | None = None) -> TrainingSet:
    """Build the training set; encodes queries and corpus where mining or scores need them.

    Scores and negatives of each of several data sets come from its own documents. Scores come
    before negatives: with ``prune_before_mining`` the method first says which pairs it keeps.

    Args:
        prepared: the run.
        data: the version of its data whose train split trains; ``None``: ``drawn``.
    """
    data = prepared.data.drawn if data is None else data
    settings, sets = prepared.settings, each_set(data)
    labelled = _labelled(data, settings)
    known = KnownPositives.of(data, labelled.query_rows, labelled.pairs)
    queries = [own.training_split().query_rows for own in sets]
    scores = _scores(prepared, data, labelled, queries, known)
    quotas = None
    if data.sets:
        pairs_per_set = np.diff(labelled.first_pairs).tolist()
        quotas = Quotas.of([own.name for own in sets], pairs_per_set, settings)
    nothing = NegativeSources("", (), first_rows(data)[1], known, None, None)
    training_set = TrainingSet(data, labelled, nothing, scores, quotas)
    kept = None
    if settings.prune_before_mining:
        methods = training_set.methods(prepared.recipe, prepared.processes)
        kept = np.concatenate([method.kept for method in methods])
    return replace(training_set, negatives=_negatives(prepared, training_set, queries, kept))


def _labelled(data: RetrievalData, settings: TrainSettings) -> LabelledPairs:
    """Read the pairs of the train split, with their weights."""
    train = data.training_split()
    of_sets = [own.training_split() for own in each_set(data)]
    weights: NDArray[np.float32] | None = None
    of_loss: NDArray[np.float32] | None = None
    if any(qrels.weights is not None for qrels in of_sets):
        ones = [np.ones(len(qrels.doc_rows), dtype=np.float32) for qrels in of_sets]
        given = [qrels.weights for qrels in of_sets]
        weights = _concatenated(given, ones)
        if settings.pair_weights == "loss":
            of_loss = _concatenated([loss_weights(each) for each in given], ones)
    first_queries = np.cumsum([0, *(qrels.n_queries for qrels in of_sets)])
    return LabelledPairs(
        train.query_rows, train.pairs(), train.grades, weights, of_loss, first_queries
    )


def _concatenated(arrays: Sequence[FloatArray | None], instead: Sequence[FloatArray]) -> Any:
    """Concatenate arrays, with others in place of those that are ``None``."""
    pairs = zip(arrays, instead, strict=True)
    return np.concatenate([other if array is None else array for array, other in pairs])


def _scores(
    prepared: Prepared,
    data: RetrievalData,
    labelled: LabelledPairs,
    queries: Sequence[NDArray[np.int32]],
    known: KnownPositives,
) -> BaseScores | None:
    """Compute the base model's scores of each set's pairs, if the method needs any."""
    settings, method = prepared.settings, prepared.recipe.method_class
    if not method.needs_scores(prepared.recipe.method_settings):
        return None
    encoder, text = prepared.model.encoder, settings.corpus_text
    sets, pools, similarities, starts = [], [], [], []
    for number, own in enumerate(each_set(data)):
        train = own.training_split()
        scores, pool = pretrained_scores(
            train.pairs(),
            encoder.encode_queries(own, queries[number]),
            encoder.encode_corpus(own, text),
            temperature=resolved(settings.temperature),
            set_size=settings.documents_per_pass(prepared.processes),
            seed=settings.seed,
            known=_known_of(data, known, number) if settings.mask_known_positives else None,
            pool=DocumentPool.of(own, text),
            cbs_pool=method.cbs_pool_size(prepared.recipe.method_settings),
        )
        similarities.append(scores.similarity.copy())
        if settings.pair_weights == "scores" and train.weights is not None:
            scores.similarity = scores_by_weight(train.weights, scores.similarity)
        starts.append(scores.similarity.copy())
        sets.append(scores)
        pools += [] if pool is None else [pool]
    start = np.concatenate(starts) if settings.pair_weights == "scores" else None
    similarity = np.concatenate(similarities)
    return BaseScores(tuple(sets), similarity, start, min(pools, default=None))


def _known_of(data: RetrievalData, known: KnownPositives, number: int) -> KnownPositives:
    """Return the known positives by the training queries and corpus rows of one set."""
    if not data.sets:
        return known
    first_queries, first_documents = first_rows(data)
    query_rows = data.sets[number].training_split().query_rows + first_queries[number]
    documents = slice(*first_documents[number : number + 2].tolist())
    return KnownPositives(known.keys, data.query_group[query_rows], data.document_group[documents])


def _negatives(
    prepared: Prepared,
    training_set: TrainingSet,
    queries: Sequence[NDArray[np.int32]],
    kept: BoolArray | None,
) -> NegativeSources:
    """Build the negatives of each set.

    Args:
        prepared: the run.
        training_set: its pairs, without negatives.
        queries: the rows of each set's training queries.
        kept: bool ``[N]``, the pairs that the method keeps; ``None`` for all.
    """
    settings, encoder, data = prepared.settings, prepared.model.encoder, training_set.data
    pairs, known = training_set.pairs, training_set.negatives.known
    left = known
    if kept is not None:
        left = known.without(pairs.pair_query[~kept], pairs.pair_doc[~kept])
    first_documents, chosen = first_rows(data)[1], prepared.data.negatives
    sets, counts, rows = [], [], [np.empty(0, dtype=np.int32)]
    for number, own in enumerate(each_set(data)):
        kind = chosen
        if {"given": own.given_negatives, "teacher": own.teacher}.get(kind, own) is None:
            kind = "random"  # another data set has them
        miner = Miner(encoder, own, settings.corpus_text, settings.mining)
        its_known = _known_of(data, left, number)
        its_pairs = own.training_split().pairs()
        inputs = NegativeInputs(own, queries[number], its_pairs, its_known, settings, miner)
        sets.append(build_negatives(kind, inputs))
        lists = getattr(sets[-1], "lists", None)
        if lists is not None:
            rows.append(lists.doc_rows + np.int32(first_documents[number]))
        counts.append(np.zeros(len(queries[number])) if lists is None else lists.counts)
    listed, pruned = None, None
    if len(rows) > 1:
        listed = Lists.from_counts(np.concatenate(counts), np.concatenate(rows))
        if kept is not None:
            pruned = _pruned_positives(listed, pairs, kept, known)
    return NegativeSources(chosen, tuple(sets), first_documents, left, listed, pruned)


def loss_weights(weights: FloatArray | None) -> NDArray[np.float32] | None:
    """Return what the loss of each pair is multiplied by: the weights over their mean: float32."""
    if weights is None:
        return None
    exact = np.asarray(weights, dtype=np.float64)
    return np.asarray(exact / exact.mean(), dtype=np.float32)


def scores_by_weight(weights: FloatArray, similarity: FloatArray) -> NDArray[np.float32]:
    """Return similarities in the order of the weights, both ``[N]``: float32 ``[N]``.

    The pair with the highest weight gets the highest similarity of the untrained model, and so on:
    the values keep the scale of the cosines that training observes. Equal weights stay in the order
    of their own similarities.
    """
    ordered = np.empty(len(weights), dtype=np.float32)
    ordered[np.lexsort((similarity, weights))] = np.sort(similarity)
    return ordered


def _pruned_positives(
    listed: Lists, pairs: TrainingPairs, kept: BoolArray, known: KnownPositives
) -> int:
    """Count the listed negatives that were pruned as positives; of a query without a pair kept none
    is ever drawn.
    """
    query = listed.queries
    drawn = pairs.sum_by_query(kept)[query] > 0
    count = int((known.contains(query, listed.doc_rows) & drawn).sum())
    log.info(
        "note: %d of the %d negatives of queries with a pair kept are pruned positives",
        count,
        drawn.sum(),
    )
    return count
