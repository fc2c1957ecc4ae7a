"""Build the training set of a run: pairs, negatives, and pretrained scores.

Of several data sets each is built by itself, from its own documents; then they are joined.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.settings import resolved
from opera.data import RetrievalData
from opera.data.combined import first_rows
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.methods.mixed import Mixture
from opera.runs.record import NegativesRecord
from opera.training_set.documents import DocumentPool, KnownPositives, Lists
from opera.training_set.mining import Miner
from opera.training_set.negatives import NegativeInputs, Negatives, build_negatives
from opera.training_set.prepare import Prepared
from opera.training_set.pretrained_scores import pretrained_scores

log = logging.getLogger("opera")


@dataclass(frozen=True)
class TrainingSet:
    """What a run trains on: n queries with N positive pairs, and their negatives.

    Attributes:
        data: the data set, for the texts.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        grades: int32 ``[N]``, the qrels' grade of each pair.
        pair_weights: float32 ``[N]``, each pair's weight in the data; ``None`` without weights.
        loss_weights: float32 ``[N]``, what the loss of each pair is multiplied by, of mean 1;
            ``None`` for nothing.
        known: the same pairs by their texts, what is held out, and documents that have a query's
            own text. With ``prune_before_mining`` only the pairs that the method keeps.
        negatives: where explicit negatives come from.
        negatives_kind: the kind of them.
        pruned_positives: how many listed negatives were pruned as positives of their query, among
            those of queries with a pair kept; ``None`` without ``prune_before_mining``, or without
            lists.
        scores: pretrained scores of the pairs, where the method needs them; training overwrites
            them.
        similarity: float32 ``[N]``, a copy of the pretrained similarities, or ``None``.
        start_scores: float32 ``[N]``, with ``pair_weights=scores``: what the method ranks or starts
            by in place of the similarities; else ``None``.
        smallest_cbs_pool: fewest documents that a pair was ranked among for its CBS, or ``None``.
        mixture: how several data sets are drawn; ``None`` for one.
    """

    data: RetrievalData
    query_rows: NDArray[np.int32]
    pairs: TrainingPairs
    grades: NDArray[np.int32]
    pair_weights: NDArray[np.float32] | None
    loss_weights: NDArray[np.float32] | None
    known: KnownPositives
    negatives: Negatives
    negatives_kind: str
    pruned_positives: int | None
    scores: PairScores | None
    similarity: FloatArray | None
    start_scores: FloatArray | None
    smallest_cbs_pool: int | None
    mixture: Mixture | None = None

    @property
    def listed(self) -> Lists | None:
        """The negatives that are listed per query; ``None`` where none are."""
        return getattr(self.negatives, "lists", None)

    @property
    def fingerprint(self) -> int:
        """A number that differs where pairs, scores, weights or listed negatives differ."""
        scores = None if self.scores is None else self.scores.loss
        lists = (None, None) if self.listed is None else (self.listed.counts, self.listed.doc_rows)
        arrays = (self.pairs.pair_query, self.pairs.pair_doc, self.similarity, self.start_scores)
        parts: list[Any] = [*arrays, self.loss_weights, scores, *lists]
        total = 0
        for part in parts:
            total = zlib.crc32(b"" if part is None else np.ascontiguousarray(part).tobytes(), total)
        return total

    @property
    def negatives_record(self) -> NegativesRecord:
        """Facts about the negatives for ``run.json``."""
        listed = self.listed
        if listed is None:
            return NegativesRecord(kind=self.negatives_kind)
        return NegativesRecord(
            kind=self.negatives_kind,
            queries_without=listed.queries_without,
            listed=len(listed.doc_rows),
            pruned_positives=self.pruned_positives,
        )


def build_training_set(prepared: Prepared, data: RetrievalData | None = None) -> TrainingSet:
    """Build the training set; encodes queries and corpus where mining or scores need them.

    Args:
        prepared: the run.
        data: the version of its data whose train split trains; ``None``: ``drawn``.
    """
    data = prepared.data.drawn if data is None else data
    train = data.training_split()
    known = KnownPositives.of(data, train.query_rows, train.pairs())
    if not data.sets:
        return _build(prepared, data, known)
    sets = []
    for own, first_query, first_document in zip(data.sets, *first_rows(data), strict=False):
        query_rows = own.training_split().query_rows + first_query
        documents = slice(first_document, first_document + len(own.corpus))
        groups = data.query_group[query_rows], data.document_group[documents]
        sets.append(_build(prepared, own, KnownPositives(known.keys, *groups)))
    return _joined(data, sets, prepared)


def _build(prepared: Prepared, data: RetrievalData, known: KnownPositives) -> TrainingSet:
    """Build the training set of one data set; ``known`` holds the positives of all of them.

    Scores come before negatives: with ``prune_before_mining`` the method first says which pairs it
    keeps by them.
    """
    settings, encoder, kind = prepared.settings, prepared.model.encoder, prepared.data.negatives
    if {"given": data.given_negatives, "teacher": data.teacher}.get(kind, data) is None:
        kind = "random"  # another data set has them
    train = data.training_split()
    query_rows, pairs, weights = train.query_rows, train.pairs(), train.weights
    scores, smallest_pool = _scores(prepared, data, query_rows, pairs, known)
    similarity = None if scores is None else scores.similarity.copy()
    start_scores = None
    if settings.pair_weights == "scores" and scores is not None:
        if weights is not None:
            scores.similarity = scores_by_weight(weights, scores.similarity)
        start_scores = scores.similarity.copy()
    kept, left = None, known
    if settings.prune_before_mining:
        kept = prepared.recipe.make_method(pairs, scores, prepared.processes).kept
        left = known.without(pairs.pair_query[~kept], pairs.pair_doc[~kept])
    miner = Miner(encoder, data, settings.corpus_text, settings.mining)
    inputs = NegativeInputs(data, query_rows, pairs, left, settings, miner)
    negatives = build_negatives(kind, inputs)
    listed = getattr(negatives, "lists", None)
    pruned = None
    if kept is not None and listed is not None:
        pruned = _pruned_positives(listed, pairs, kept, known)
    return TrainingSet(
        data=data,
        query_rows=query_rows,
        pairs=pairs,
        grades=train.grades,
        pair_weights=weights,
        loss_weights=loss_weights(weights) if settings.pair_weights == "loss" else None,
        known=left,
        negatives=negatives,
        negatives_kind=kind,
        pruned_positives=pruned,
        scores=scores,
        similarity=similarity,
        start_scores=start_scores,
        smallest_cbs_pool=smallest_pool,
    )


def _scores(
    prepared: Prepared,
    data: RetrievalData,
    query_rows: NDArray[np.int32],
    pairs: TrainingPairs,
    known: KnownPositives,
) -> tuple[PairScores | None, int | None]:
    """Compute the pretrained scores that the method needs, if any, and the smallest CBS pool."""
    settings, method = prepared.settings, prepared.recipe.method_class
    if not method.needs_scores(prepared.recipe.method_settings):
        return None, None
    encoder = prepared.model.encoder
    return pretrained_scores(
        pairs,
        encoder.encode_queries(data, query_rows),
        encoder.encode_corpus(data, settings.corpus_text),
        temperature=resolved(settings.temperature),
        set_size=settings.documents_per_pass(prepared.processes),
        seed=settings.seed,
        known=known if settings.mask_known_positives else None,
        pool=DocumentPool.of(data, settings.corpus_text),
        cbs_pool=method.cbs_pool_size(prepared.recipe.method_settings),
    )


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


def shares_of(
    data: RetrievalData, pairs: Sequence[int], settings: MixingSettings
) -> NDArray[np.float64]:
    """Return the share of the draws from each set, of sum 1, by its pairs: float64 ``[sets]``."""
    if settings.mix in ("proportional", "equal"):
        weights = np.array(pairs, dtype=np.float64) ** (settings.mix == "proportional")
    else:
        given = shares_by_name(settings.mix)
        weights = np.array([given[own.name] for own in data.sets])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@dataclass(frozen=True)
class _NegativesOfSets:
    """The negatives of each set, by training query."""

    sets: Sequence[TrainingSet]
    first_queries: NDArray[np.int64]
    first_documents: NDArray[np.int64]

    @cached_property
    def lists(self) -> Lists | None:
        """Those of all sets that are listed, by training query."""
        counts, rows = [], [np.empty(0, dtype=np.int32)]
        for own, first in zip(self.sets, self.first_documents, strict=False):
            listed = own.listed
            none = np.zeros(own.pairs.n_queries, dtype=np.int64)
            counts.append(none if listed is None else listed.counts)
            rows += [] if listed is None else [listed.doc_rows + np.int32(first)]
        if all(own.listed is None for own in self.sets):
            return None
        return Lists.from_counts(np.concatenate(counts), np.concatenate(rows))

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return corpus rows, int64 ``[B, count]``, each of its query's own set."""
        owner = np.searchsorted(self.first_queries, queries, side="right") - 1
        rows = np.empty((len(queries), count), dtype=np.int64)
        for number in np.unique(owner).tolist():
            own = np.asarray(queries)[owner == number] - self.first_queries[number]
            drawn = self.sets[number].negatives.draw(own, count, seed, step)
            rows[owner == number] = drawn + self.first_documents[number]
        return rows


def _joined(data: RetrievalData, sets: Sequence[TrainingSet], prepared: Prepared) -> TrainingSet:
    """Put the training sets of several data sets one after another, in the rows of all."""
    first_queries = np.cumsum([0, *(own.pairs.n_queries for own in sets)])
    first_query_rows, first_documents = first_rows(data)

    def shifted(arrays: Sequence[NDArray[Any]], firsts: IntArray) -> Any:
        moved = [own + own.dtype.type(first) for own, first in zip(arrays, firsts, strict=False)]
        return np.concatenate(moved)

    def together(arrays: Sequence[NDArray[Any] | None]) -> Any:
        """Weights of a set without any are 1."""
        if all(own is None for own in arrays):
            return None
        sizes = (own.pairs.n_pairs for own in sets)
        filled = [
            np.ones(size, dtype=np.float32) if own is None else own
            for own, size in zip(arrays, sizes, strict=True)
        ]
        return np.concatenate(filled)

    pairs = TrainingPairs.from_arrays(
        shifted([own.pairs.pair_query for own in sets], first_queries),
        shifted([own.pairs.pair_doc for own in sets], first_documents),
    )
    query_rows = shifted([own.query_rows for own in sets], first_query_rows)
    known_keys = reduce(np.intersect1d, (own.known.keys for own in sets))  # but those pruned
    scores = [own.scores for own in sets if own.scores is not None]
    pruned = [own.pruned_positives for own in sets if own.pruned_positives is not None]
    pools = [own.smallest_cbs_pool for own in sets if own.smallest_cbs_pool is not None]
    shares = shares_of(data, [own.pairs.n_pairs for own in sets], prepared.settings)
    return TrainingSet(
        data=data,
        query_rows=query_rows,
        pairs=pairs,
        grades=together([own.grades for own in sets]),
        pair_weights=together([own.pair_weights for own in sets]),
        loss_weights=together([own.loss_weights for own in sets]),
        known=KnownPositives(known_keys, data.query_group[query_rows], data.document_group),
        negatives=_NegativesOfSets(sets, first_queries, first_documents),
        negatives_kind=prepared.data.negatives,
        pruned_positives=sum(pruned) if pruned else None,
        scores=PairScores(
            pairs,
            together([own.similarity for own in scores]),
            together([own.loss for own in scores]),
            together([own.cbs for own in scores]),
        )
        if scores
        else None,
        similarity=together([own.similarity for own in sets]),
        start_scores=together([own.start_scores for own in sets]),
        smallest_cbs_pool=min(pools, default=None),
        mixture=Mixture(first_queries, shares, prepared.settings.one_set_per_step),
    )
