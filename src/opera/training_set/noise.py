"""Inject false positives into the training pairs, to study label noise (Section 3.5, Appendix
C.4).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import DEFAULT_RANGE, MiningSettings
from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.splits import copy_splits
from opera.training_set.documents import DocumentPool, KnownPositives, Lists
from opera.training_set.mining import Miner, check_range

if TYPE_CHECKING:
    from opera.retrieval.encoder import Encoder

log = logging.getLogger("opera")

Draw = Callable[[int, np.random.Generator, int], NDArray[np.int64]]
"""Draws corpus rows for a training query, so many and without repeats."""
Noisy = tuple[Qrels, NDArray[np.bool_]]
"""True and false qrels together, and which of them are false: bool ``[M]``."""


def check_noise(original: RetrievalData, data: RetrievalData, settings: TrainSettings) -> None:
    """Refuse noise that the data cannot give; arguments as for :func:`inject_noise`.

    Raises:
        SettingError: with the numbers.
    """
    if settings.noise == "hard":
        check_range(DEFAULT_RANGE, len(data.corpus), "noise=hard")
    if settings.noise == "grade" and not _judged_below(original, data, settings)[1].any():
        raise SettingError(
            f"noise_grade={settings.noise_grade}: {data.title} has no train judgement with a score "
            f"from {settings.noise_grade} to {settings.relevant_grade - 1}; give another "
            "noise_grade or relevant_grade"
        )


def inject_noise(
    original: RetrievalData, data: RetrievalData, settings: TrainSettings, encoder: Encoder
) -> Noisy:
    """Return the relevant qrels of train, with the false positives that ``noise`` asks for.

    Args:
        original: the data with its original grades.
        data: the data that trains: grades below ``relevant_grade`` are 0, and missing splits are
            drawn.
        settings: the run's settings.
        encoder: the untrained model, for ``noise=hard``.
    """
    clean, seed, share = data.training_split(), settings.seed, settings.noise_share or 0.0
    if settings.noise == "none":
        return clean, np.zeros(len(clean.doc_rows), dtype=bool)
    if settings.noise == "grade":
        noisy = _judged_below(original, data, settings)
    elif settings.noise == "random":
        pool = DocumentPool.of(data, settings.corpus_text)
        true = clean if data.held_out is None else clean.union(data.held_out.relevant())
        true = true.select_queries(np.isin(true.query_rows, clean.query_rows))
        noisy = add_false_positives(clean, share, seed, *random_candidates(true, pool))
    else:
        pairs = clean.pairs()
        known = KnownPositives.of(data, clean.query_rows, pairs)
        miner = Miner(encoder, data, settings.corpus_text, MiningSettings())
        mined = miner.mine(clean.query_rows, pairs, known, len(data.corpus), seed)
        noisy = add_false_positives(clean, share, seed, *listed_candidates(mined))
    count = int(noisy[1].sum())
    log.info("noise=%s: %d of %d training pairs are false", settings.noise, count, len(noisy[1]))
    wanted = false_positive_count(len(clean.doc_rows), share)
    if count < wanted:
        log.info("note: noise_share=%s needs %d; there are no more candidates", share, wanted)
    return noisy


def _judged_below(original: RetrievalData, data: RetrievalData, settings: TrainSettings) -> Noisy:
    """Add documents judged below what counts as relevant: the paper's ANTIQUE setup (Appendix C.4).

    They are judged in the original grades, by the queries that are left in train, and keep their
    grades and weights.
    """
    assert settings.noise_grade is not None
    judged = copy_splits(original, source=data).split("train")
    false = (judged.grades >= settings.noise_grade) & (judged.grades < settings.relevant_grade)
    return _with_false(data.training_split(), judged.select_judgements(false))


def _with_false(clean: Qrels, false: Qrels) -> Noisy:
    """Put true and false qrels together; false ones without weights get the mean of the true."""
    if clean.weights is not None and false.weights is None:
        mean = np.full(len(false.doc_rows), clean.weights.mean())
        false = Qrels.from_arrays(
            false.query_rows[false.query_index], false.doc_rows, false.grades, mean
        )
    noisy = clean.union(false)
    return noisy, false.contains(noisy)


def false_positive_count(n_pairs: int, share: float) -> int:
    """How many false pairs make up ``share`` of all, beside ``n_pairs`` true ones: ⌊share/(1 -
    share)·N⌋.
    """
    return math.floor(share / (1 - share) * n_pairs + 1e-9)


def random_candidates(true: Qrels, pool: DocumentPool) -> tuple[NDArray[np.int64], Draw]:
    """All documents but the query's true positives: how many there are for each, and their draw."""
    own = true.query_index[pool.holds(true.doc_rows)]

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        others = pool.without(true.doc_rows[true.offsets[query] : true.offsets[query + 1]])
        return others.rows(rng.choice(len(others), count, replace=False))

    return len(pool) - np.bincount(own, minlength=true.n_queries), draw


def listed_candidates(mined: Lists) -> tuple[NDArray[np.int64], Draw]:
    """Those of a list per query: hard false positives from the untrained model's ranking."""

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return rng.choice(mined.of_query(query), count, replace=False).astype(np.int64)

    return mined.counts, draw


def add_false_positives(
    clean: Qrels, share: float, seed: int, available: NDArray[np.int64], draw: Draw
) -> Noisy:
    """Add false positives, of grade 0, until ``share`` of all pairs are, or candidates run out.

    Each goes to the query of a true pair drawn at random, so queries get them in proportion to
    their positives. What a query has no candidates for goes to the others in the same way.

    Args:
        clean: the relevant qrels of train.
        share: share of all pairs that is false afterwards.
        seed: seed of the draws.
        available: int64 ``[n]``, how many candidates there are for each training query.
        draw: draws some of them.
    """
    count = false_positive_count(len(clean.doc_rows), share)
    wanted = _counts_by_query(clean, count, available, seed)
    rng = generator(seed, "noise.documents")
    rows = [draw(int(query), rng, int(wanted[query])) for query in np.flatnonzero(wanted)]
    documents = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    queries, grades = np.repeat(clean.query_rows, wanted), np.zeros(len(documents), dtype=np.int32)
    return _with_false(clean, Qrels.from_arrays(queries, documents, grades))


def _counts_by_query(clean: Qrels, count: int, available: IntArray, seed: int) -> NDArray[np.int64]:
    """How many false positives each query gets: int64 ``[n]``."""
    wanted = np.zeros(clean.n_queries, dtype=np.int64)
    missing, turn = min(count, int(available.sum())), 0
    while missing:
        owners = clean.query_index[(wanted < available)[clean.query_index]]
        drawn = owners[generator(seed, "noise.queries", turn).integers(len(owners), size=missing)]
        wanted += np.bincount(drawn, minlength=clean.n_queries)
        too_many = np.maximum(wanted - available, 0)
        wanted -= too_many
        missing, turn = int(too_many.sum()), turn + 1
    return wanted
