"""What a run trains on: the pairs, with the noise that was asked for; their scores; the negatives."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.retrieval.search import search_corpus
from opera.training.distributed import world_size
from opera.training_set.cbs import rank_among_random
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, Negatives, RandomNegatives, mine_hard_negatives
from opera.training_set.noise import (
    Candidates,
    ListedCandidates,
    NoisyTraining,
    RandomCandidates,
    drawn_false_positives,
    false_positive_count,
)
from opera.training_set.prepare import Prepared
from opera.training_set.pretrained_scores import pretrained_scores

log = logging.getLogger("opera")


@dataclass(frozen=True)
class Material:
    """What a run trains on.

    Attributes:
        training: the qrels behind the pairs, and which of them are false on purpose.
        pairs: the training pairs.
        known: the same, to look up; injected ones count, since a trainer cannot know better.
        negatives: where explicit negatives come from.
        scores: pretrained scores of the pairs, where the method needs them; training overwrites them.
        similarity: float32 ``[N]``, a copy of the pretrained similarities, or ``None``.
        about: facts for ``run.json``.
    """

    training: NoisyTraining
    pairs: TrainingPairs
    known: KnownPositives
    negatives: Negatives
    scores: PairScores | None
    similarity: FloatArray | None
    about: dict[str, Any]

    @property
    def fingerprint(self) -> int:
        """A number that differs where pairs, scores or listed negatives differ."""
        parts = [self.pairs.pair_query, self.pairs.pair_doc, self.similarity]
        parts += [getattr(self.negatives, "doc_rows", None), None if self.scores is None else self.scores.loss]
        total = 0
        for part in parts:
            total = zlib.crc32(b"" if part is None else np.ascontiguousarray(part).tobytes(), total)
        return total

    @property
    def query_rows(self) -> NDArray[np.int32]:
        """The query table's row of each training query: int32 ``[n]``."""
        return self.training.qrels.query_rows


def gather(prepared: Prepared) -> Material:
    """Put together what a run trains on; encodes queries and corpus where scores or mining need them."""
    training = _training_pairs(prepared)
    pairs, query_rows = training.qrels.pairs(), training.qrels.query_rows
    known = KnownPositives(pairs, len(prepared.data.corpus))
    negatives, negatives_about = _negatives(prepared, query_rows, known)
    scores, scores_about = _scores(prepared, pairs, query_rows, known)
    return Material(
        training,
        pairs,
        known,
        negatives,
        scores,
        None if scores is None else scores.similarity.copy(),
        {"negatives": negatives_about, "scores": scores_about},
    )


def _training_pairs(prepared: Prepared) -> NoisyTraining:
    """Return the pairs to train on, with the false ones that ``noise`` asks for; says how many."""
    settings, data, clean = prepared.settings, prepared.data, prepared.training
    if settings.noise == "none":
        return NoisyTraining(clean, np.zeros(len(clean.doc_rows), dtype=bool))
    if prepared.graded_down is not None:
        noisy = prepared.graded_down
    else:
        assert settings.noise_share is not None
        if settings.noise == "random":
            candidates: Candidates = RandomCandidates(clean, len(data.corpus))
        else:
            known = KnownPositives(clean.pairs(), len(data.corpus))
            mined = _mine(prepared, clean.query_rows, known, settings.noise_ranks, keep=len(data.corpus))
            candidates = ListedCandidates(mined)
        noisy = drawn_false_positives(clean, settings.noise_share, settings.seed, candidates)
    log.info("noise=%s: %d of %d training pairs are false", settings.noise, noisy.count, len(noisy.injected))
    wanted = false_positive_count(len(clean.doc_rows), settings.noise_share or 0.0)
    if noisy.count < wanted:
        log.info("note: noise_share=%s asks for %d; there are no more candidates", settings.noise_share, wanted)
    return noisy


def _mine(
    prepared: Prepared, query_rows: NDArray[np.int32], known: KnownPositives, ranks: tuple[int, int], keep: int
) -> ListedNegatives:
    settings, data, encoder = prepared.settings, prepared.data, prepared.encoder
    ranking = search_corpus(encoder, data, query_rows, ranks[1], settings.corpus_text)
    return mine_hard_negatives(ranking, known, ranks, keep, settings.seed)


def _negatives(
    prepared: Prepared, query_rows: NDArray[np.int32], known: KnownPositives
) -> tuple[Negatives, dict[str, Any]]:
    settings, data = prepared.settings, prepared.data
    kind = prepared.negatives
    n_docs = len(data.corpus)
    if kind == "random" or settings.train_group_size == 1:
        return RandomNegatives(n_docs), {"kind": kind}
    if kind == "given":
        given = data.given_negatives
        assert given is not None
        rows = [given.doc_rows[given.offsets[q] : given.offsets[q + 1]] for q in query_rows]
        fine = [part[~known.contains(np.full(len(part), query), part)] for query, part in enumerate(rows)]
        listed = ListedNegatives.of(fine, n_docs)
        if positive := sum(map(len, rows)) - len(listed.doc_rows):
            log.info("note: %d given negatives are positives of their query, and left out", positive)
    else:
        listed = _mine(prepared, query_rows, known, settings.mining_range, settings.max_mined_negatives)
    if listed.without:
        log.info("note: %d queries have no %s negative: theirs are random", listed.without, kind)
    return listed, {"kind": kind, "queries_without": listed.without, "listed": len(listed.doc_rows)}


def _scores(
    prepared: Prepared, pairs: TrainingPairs, query_rows: NDArray[np.int32], known: KnownPositives
) -> tuple[PairScores | None, dict[str, Any]]:
    """Return the pretrained scores that the method needs, if any, and what ``run.json`` should say of them."""
    settings, method_settings = prepared.settings, prepared.recipe.method_settings
    if not prepared.method.needs_scores(method_settings):
        return None, {}
    queries = prepared.encoder.encode_queries(prepared.data, query_rows)
    corpus = prepared.encoder.encode_corpus(prepared.data, settings.corpus_text)
    scores = pretrained_scores(
        pairs,
        queries,
        corpus,
        settings.temperature,
        settings.per_device_train_batch_size * world_size() * settings.train_group_size,
        settings.seed,
        known if settings.mask_known_positives else None,
    )
    pool = prepared.method.cbs_pool_size(method_settings)
    if pool == 0:
        return scores, {}
    consistency = rank_among_random(pairs, queries, corpus, pool, settings.seed)
    if note := consistency.small_pool_note(pool):
        log.info("note: %s", note)
    return scores.with_cbs(consistency.cbs), {"smallest_cbs_pool": consistency.smallest_pool}
