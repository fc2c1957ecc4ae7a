"""Inject false positives into the training pairs, to study label noise (Section 3.5, Appendix
C.4).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import DEFAULT_RANGE
from opera.config.training import TrainSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.splits import copy_splits
from opera.retrieval.measures import Ranking
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.negatives import ListedNegatives, check_range, mine_hard_negatives

log = logging.getLogger("opera")


@dataclass(frozen=True)
class NoisyQrels:
    """Training qrels of which some are false.

    Attributes:
        qrels: true and false ones together; those of ``noise=grade`` keep their grade, drawn ones
            have grade 0.
        injected: bool ``[M]``, which of them are false.
    """

    qrels: Qrels
    injected: BoolArray

    @classmethod
    def clean(cls, qrels: Qrels) -> NoisyQrels:
        """Without noise."""
        return cls(qrels, np.zeros(len(qrels.doc_rows), dtype=bool))

    @classmethod
    def add(
        cls,
        clean: Qrels,
        query_rows: IntArray,
        doc_rows: IntArray,
        grades: IntArray,
        weights: FloatArray | None = None,
    ) -> NoisyQrels:
        """Add false qrels.

        Args:
            clean: the true ones.
            query_rows: int ``[F]``, rows of the query table.
            doc_rows: int ``[F]``, rows of the corpus.
            grades: int ``[F]``.
            weights: ``[F]``; ``None``: where the true ones have weights, the mean of these.
        """
        query = np.concatenate([clean.query_rows[clean.query_index], query_rows])
        doc = np.concatenate([clean.doc_rows, doc_rows])
        grade = np.concatenate([clean.grades, grades])
        injected = np.arange(len(query)) >= len(clean.doc_rows)
        joined = None
        if clean.weights is not None:
            own = np.full(len(query_rows), clean.weights.mean()) if weights is None else weights
            joined = np.concatenate([clean.weights, np.asarray(own, dtype=np.float32)])
        return cls(Qrels.from_arrays(query, doc, grade, joined), injected[np.lexsort((doc, query))])

    @property
    def count(self) -> int:
        """How many are false."""
        return int(self.injected.sum())


def check_noise(original: RetrievalData, data: RetrievalData, settings: TrainSettings) -> None:
    """Refuse noise that the data cannot give; arguments as for :func:`inject_noise`.

    Raises:
        SettingError: with the numbers.
    """
    if settings.noise == "hard":
        check_range(DEFAULT_RANGE, len(data.corpus), "noise=hard")
    if settings.noise_grade is not None and _judged_below(original, data, settings).count == 0:
        raise SettingError(
            f"noise_grade={settings.noise_grade}: {data.title} has no train judgement with a score "
            f"from "
            f"{settings.noise_grade} to {settings.relevant_grade - 1}; give another noise_grade or "
            f"relevant_grade"
        )


def inject_noise(
    original: RetrievalData,
    data: RetrievalData,
    settings: TrainSettings,
    search: Callable[[NDArray[np.int32], int], Ranking],
) -> NoisyQrels:
    """Return the relevant qrels of train, with the false positives that ``noise`` asks for.

    Args:
        original: the data with its original grades.
        data: the data that trains: grades below ``relevant_grade`` are 0, and missing splits are
            drawn.
        settings: the run's settings.
        search: ranks the corpus for rows of the query table by the pretrained model, down to a
            depth.
    """
    clean, seed = data.training_split(), settings.seed
    if settings.noise == "none":
        return NoisyQrels.clean(clean)
    pool = DocumentPool.of(data, settings.corpus_text)
    if settings.noise == "grade":
        noisy = _judged_below(original, data, settings)
    elif settings.noise == "random":
        noisy = add_false_positives(clean, _share(settings), seed, random_candidates(clean, pool))
    else:
        known = KnownPositives(clean.pairs(), len(data.corpus), clean.query_rows, data.held_out)
        ranking = search(clean.query_rows, DEFAULT_RANGE[1])
        mined = mine_hard_negatives(ranking, known, DEFAULT_RANGE, len(data.corpus), seed, pool)
        noisy = add_false_positives(clean, _share(settings), seed, listed_candidates(mined))
    log.info(
        "noise=%s: %d of %d training pairs are false",
        settings.noise,
        noisy.count,
        len(noisy.injected),
    )
    wanted = false_positive_count(len(clean.doc_rows), settings.noise_share or 0.0)
    if noisy.count < wanted:
        log.info(
            "note: noise_share=%s needs %d; there are no more candidates",
            settings.noise_share,
            wanted,
        )
    return noisy


def _share(settings: TrainSettings) -> float:
    assert settings.noise_share is not None
    return settings.noise_share


def _judged_below(
    original: RetrievalData, data: RetrievalData, settings: TrainSettings
) -> NoisyQrels:
    """``noise=grade``, from the original grades of the queries that are left in train."""
    assert settings.noise_grade is not None
    left = copy_splits(original, source=data).split("train")
    return add_lower_grades(
        data.training_split(), left, settings.relevant_grade, settings.noise_grade
    )


def add_lower_grades(
    clean: Qrels, judged: Qrels, relevant_grade: int, noise_grade: int
) -> NoisyQrels:
    """Add documents judged below what counts as relevant: the paper's ANTIQUE setup (Appendix C.4).

    Args:
        clean: the relevant qrels of train.
        judged: all qrels of train, with their original grades.
        relevant_grade: lowest grade that counts as relevant (ANTIQUE: 3).
        noise_grade: lowest grade added as a false positive (ANTIQUE: 2).
    """
    false = (judged.grades >= noise_grade) & (judged.grades < relevant_grade)
    weights = None if judged.weights is None else judged.weights[false]
    query_rows = judged.query_rows[judged.query_index[false]]
    return NoisyQrels.add(clean, query_rows, judged.doc_rows[false], judged.grades[false], weights)


def false_positive_count(n_pairs: int, share: float) -> int:
    """How many false pairs make up ``share`` of all, beside ``n_pairs`` true ones: ⌊share/(1 -
    share)·N⌋.
    """
    return math.floor(share / (1 - share) * n_pairs + 1e-9)


@dataclass(frozen=True)
class Candidates:
    """Documents that may become false positives.

    Attributes:
        available: int64 ``[n]``, how many there are for each training query.
        draw: draws corpus rows for a query, so many and without repeats; at most as many as are
            available.
    """

    available: NDArray[np.int64]
    draw: Callable[[int, np.random.Generator, int], NDArray[np.int64]]


def random_candidates(clean: Qrels, pool: DocumentPool) -> Candidates:
    """All documents but the query's own positives."""
    own = clean.query_index[pool.holds(clean.doc_rows)]

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        positives = clean.doc_rows[clean.offsets[query] : clean.offsets[query + 1]]
        others = pool.without(positives)
        return others.rows(rng.choice(len(others), count, replace=False))

    return Candidates(len(pool) - np.bincount(own, minlength=clean.n_queries), draw)


def listed_candidates(mined: ListedNegatives) -> Candidates:
    """Those of a list per query: hard false positives from the untrained model's ranking."""

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        listed = mined.doc_rows[mined.offsets[query] : mined.offsets[query + 1]]
        return rng.choice(listed, count, replace=False).astype(np.int64)

    return Candidates(np.diff(mined.offsets), draw)


def add_false_positives(
    clean: Qrels, share: float, seed: int, candidates: Candidates
) -> NoisyQrels:
    """Add false positives until ``share`` of all pairs are false, or the candidates run out.

    Each goes to the query of a true pair drawn at random, so queries get them in proportion to
    their positives. What a query has no candidates for goes to the others in the same way.

    Args:
        clean: the relevant qrels of train.
        share: share of all pairs that is false afterwards.
        seed: seed of the draws.
        candidates: the documents.
    """
    wanted = _counts_by_query(
        clean, false_positive_count(len(clean.doc_rows), share), candidates.available, seed
    )
    rng = generator(seed, "noise.documents")
    query_rows, doc_rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for query in np.flatnonzero(wanted):
        doc_rows.append(candidates.draw(int(query), rng, int(wanted[query])))
        query_rows.append(np.full(len(doc_rows[-1]), clean.query_rows[query], dtype=np.int64))
    false = np.concatenate(doc_rows)
    return NoisyQrels.add(
        clean, np.concatenate(query_rows), false, np.zeros(len(false), dtype=np.int64)
    )


def _counts_by_query(clean: Qrels, count: int, available: IntArray, seed: int) -> NDArray[np.int64]:
    """How many false positives each query gets: int64 ``[n]``."""
    wanted, missing, turn = (
        np.zeros(clean.n_queries, dtype=np.int64),
        min(count, int(available.sum())),
        0,
    )
    while missing:
        owners = clean.query_index[(wanted < available)[clean.query_index]]
        drawn = owners[generator(seed, "noise.queries", turn).integers(len(owners), size=missing)]
        wanted += np.bincount(drawn, minlength=clean.n_queries)
        too_many = np.maximum(wanted - available, 0)
        wanted -= too_many
        missing, turn = int(too_many.sum()), turn + 1
    return wanted
