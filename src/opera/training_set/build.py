"""Build the training set of a run: pairs with injected noise, negatives, and pretrained scores."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray
from opera.core.settings import resolved
from opera.data import RetrievalData
from opera.data.pairs import TrainingPairs
from opera.data.teacher import TeacherScores
from opera.methods import PairScores
from opera.methods.mixed import Mixture
from opera.retrieval.measures import Ranking
from opera.retrieval.search import search_corpus
from opera.runs.record import NegativesRecord
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.mining import Miner
from opera.training_set.negatives import (
    ListedNegatives,
    Lists,
    NegativeInputs,
    Negatives,
    build_negatives,
)
from opera.training_set.noise import inject_noise
from opera.training_set.prepare import Prepared
from opera.training_set.pretrained_scores import pretrained_scores
from opera.training_set.weights import loss_weights, scores_by_weight

log = logging.getLogger("opera")


@dataclass(frozen=True)
class TrainingSet:
    """What a run trains on: n queries with N positive pairs, and their negatives.

    Attributes:
        data: the data set, for the texts.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs, injected ones among them.
        grades: int32 ``[N]``, the qrels' grade of each pair; 0 for an injected one.
        injected: bool ``[N]``, which pairs are false on purpose.
        pair_weights: float32 ``[N]``, each pair's weight in the data, 1 for an injected one;
            ``None`` without weights.
        loss_weights: float32 ``[N]``, what the loss of each pair is multiplied by, of mean 1;
            ``None`` for nothing.
        teacher: scores of a teacher for pairs of the query table and the corpus, or ``None``.
        known: the same pairs, to look up; injected ones count, since a trainer cannot know better.
            With ``prune_before_mining`` only those that the method keeps.
        negatives: where explicit negatives come from.
        negatives_kind: the kind of them.
        listed: those that are listed per query; ``None`` where none are.
        scores: pretrained scores of the pairs, where the method needs them; training overwrites
            them.
        pruned_positives: how many listed negatives were pruned as positives of their query, among
            those of queries with a pair kept; ``None`` without ``prune_before_mining``, or without
            lists.
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
    injected: BoolArray
    pair_weights: NDArray[np.float32] | None
    loss_weights: NDArray[np.float32] | None
    teacher: TeacherScores | None
    known: KnownPositives
    negatives: Negatives
    negatives_kind: str
    listed: Lists | None
    pruned_positives: int | None
    scores: PairScores | None
    similarity: FloatArray | None
    smallest_cbs_pool: int | None
    start_scores: FloatArray | None = None
    mixture: Mixture | None = None

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


def build_training_set(prepared: Prepared) -> TrainingSet:
    """Build the training set; encodes queries and corpus where noise, mining or scores need them.

    Scores come before negatives: with ``prune_before_mining`` the method first says which pairs it
    keeps by them.
    """
    settings, data = prepared.settings, prepared.data

    def search(query_rows: NDArray[np.int32], depth: int) -> Ranking:
        return search_corpus(prepared.encoder, data, query_rows, depth, settings.corpus_text)

    noisy = inject_noise(prepared.original, data, settings, search)
    query_rows, pairs = noisy.qrels.query_rows, noisy.qrels.pairs()
    known = KnownPositives(pairs, len(data.corpus), query_rows, data.held_out)
    scores, similarity, smallest_pool = _pretrained_scores(
        prepared, pairs, query_rows, known, noisy.qrels.weights
    )
    by_weight = settings.pair_weights == "scores"
    kept, left = None, known
    if settings.prune_before_mining:
        kept = prepared.recipe.make_method(pairs, scores, prepared.processes).kept
        left = known.without(pairs.pair_query[~kept], pairs.pair_doc[~kept])
    miner = Miner(
        prepared.encoder,
        data,
        settings.corpus_text,
        settings.mining,
    )
    veto = miner.veto(query_rows, pairs)
    inputs = NegativeInputs(
        data, query_rows, left, settings, lambda depth: miner.rank(query_rows, depth), veto
    )
    negatives = build_negatives(prepared.negatives, inputs)
    listed = negatives.lists if isinstance(negatives, ListedNegatives) else None
    return TrainingSet(
        data=data,
        query_rows=query_rows,
        pairs=pairs,
        grades=noisy.qrels.grades,
        injected=noisy.injected,
        pair_weights=noisy.qrels.weights,
        loss_weights=loss_weights(noisy.qrels.weights, settings),
        teacher=data.teacher,
        known=left,
        negatives=negatives,
        negatives_kind=prepared.negatives,
        listed=listed,
        pruned_positives=None
        if kept is None or listed is None
        else _pruned_positives(listed, pairs, kept, known),
        scores=scores,
        similarity=similarity,
        smallest_cbs_pool=smallest_pool,
        start_scores=None if scores is None or not by_weight else scores.similarity.copy(),
    )


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


def _pretrained_scores(
    prepared: Prepared,
    pairs: TrainingPairs,
    query_rows: NDArray[np.int32],
    known: KnownPositives,
    weights: NDArray[np.float32] | None,
) -> tuple[PairScores | None, FloatArray | None, int | None]:
    """Compute the pretrained scores that the method needs, if any, the similarities, and the
    smallest CBS pool.

    With ``pair_weights=scores`` the weights order the similarities.
    """
    settings, recipe = prepared.settings, prepared.recipe
    if not recipe.method_class.needs_scores(recipe.method_settings):
        return None, None, None
    pool_size = recipe.method_class.cbs_pool_size(recipe.method_settings)
    encoder = prepared.encoder
    query_embeddings = encoder.encode_queries(prepared.data, query_rows)
    document_embeddings = encoder.encode_corpus(prepared.data, settings.corpus_text)
    scores, smallest_pool = pretrained_scores(
        pairs,
        query_embeddings,
        document_embeddings,
        temperature=resolved(settings.temperature),
        set_size=settings.documents_per_pass(prepared.processes),
        seed=settings.seed,
        known=known if settings.mask_known_positives else None,
        pool=DocumentPool.of(prepared.data, settings.corpus_text),
        cbs_pool=pool_size,
    )
    similarity = scores.similarity.copy()
    if weights is not None and settings.pair_weights == "scores":
        scores = PairScores(pairs, scores_by_weight(weights, similarity), scores.loss, scores.cbs)
    return scores, similarity, smallest_pool
