"""False positives put into the training pairs on purpose, to study label noise (Section 3.5, Appendix C.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.core.rng import generator
from opera.data import Qrels
from opera.training_set.negatives import ListedNegatives


class Candidates(Protocol):
    """Where false positives come from."""

    @property
    def available(self) -> NDArray[np.int64]:
        """How many documents may stand as false positives of each training query: int64 ``[n]``."""
        ...

    def draw(self, query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` of a query's, at most as many as are available: corpus rows, without repeats."""
        ...


@dataclass(frozen=True)
class NoisyTraining:
    """Training qrels of which some are false.

    Attributes:
        qrels: true and false together; false ones of :func:`graded_down` keep their grade, drawn ones have 0.
        injected: bool ``[M]``, which of them are false.
    """

    qrels: Qrels
    injected: BoolArray

    @classmethod
    def of(cls, clean: Qrels, query_rows: IntArray, doc_rows: IntArray, grades: IntArray) -> NoisyTraining:
        """Add false qrels, given as rows of the query table, rows of the corpus and grades, each ``[F]``."""
        query = np.concatenate([clean.query_rows[clean.query_index], query_rows])
        doc = np.concatenate([clean.doc_rows, doc_rows])
        grade = np.concatenate([clean.grades, grades])
        injected = np.arange(len(query)) >= len(clean.doc_rows)
        return cls(Qrels.from_arrays(query, doc, grade), injected[np.lexsort((doc, query))])

    @property
    def count(self) -> int:
        """How many are false."""
        return int(self.injected.sum())


def graded_down(clean: Qrels, judged: Qrels, relevant_grade: int, noise_grade: int) -> NoisyTraining:
    """Let in documents judged below what counts as relevant: the paper's ANTIQUE setup (Appendix C.4).

    Args:
        clean: the relevant judgements of train.
        judged: all judgements of train, with their original grades.
        relevant_grade: lowest grade that counts as relevant (ANTIQUE: 3).
        noise_grade: lowest grade let in as a false positive (ANTIQUE: 2).
    """
    falsely = (judged.grades >= noise_grade) & (judged.grades < relevant_grade)
    return NoisyTraining.of(
        clean, judged.query_rows[judged.query_index[falsely]], judged.doc_rows[falsely], judged.grades[falsely]
    )


def false_positive_count(n_pairs: int, share: float) -> int:
    """How many false pairs make up ``share`` of all, beside ``n_pairs`` true ones: ⌊share/(1 - share)·N⌋."""
    return math.floor(share / (1 - share) * n_pairs + 1e-9)


def drawn_false_positives(clean: Qrels, share: float, seed: int, candidates: Candidates) -> NoisyTraining:
    """Add false positives until ``share`` of all pairs are false, or the candidates run out.

    Each goes to the query of a true pair drawn at random, so queries get them in proportion to their positives; what a
    query has no candidates for goes to the others in the same way.

    Args:
        clean: the relevant judgements of train.
        share: of all pairs that are then false.
        seed: of the draws.
        candidates: :class:`RandomCandidates` or :class:`ListedCandidates`.
    """
    wanted = _counts_by_query(clean, false_positive_count(len(clean.doc_rows), share), candidates.available, seed)
    rng = generator(seed, "noise.documents")
    queries, docs = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for query in np.flatnonzero(wanted):
        docs.append(candidates.draw(int(query), rng, int(wanted[query])))
        queries.append(np.full(len(docs[-1]), clean.query_rows[query], dtype=np.int64))
    falsely = np.concatenate(docs)
    return NoisyTraining.of(clean, np.concatenate(queries), falsely, np.zeros(len(falsely), dtype=np.int64))


def _counts_by_query(clean: Qrels, count: int, available: IntArray, seed: int) -> NDArray[np.int64]:
    wanted, missing, turn = np.zeros(clean.n_queries, dtype=np.int64), min(count, int(available.sum())), 0
    while missing:
        owners = clean.query_index[(wanted < available)[clean.query_index]]
        drawn = owners[generator(seed, "noise.queries", turn).integers(len(owners), size=missing)]
        wanted += np.bincount(drawn, minlength=clean.n_queries)
        too_many = np.maximum(wanted - available, 0)
        wanted -= too_many
        missing, turn = int(too_many.sum()), turn + 1
    return wanted


@dataclass(frozen=True)
class RandomCandidates:
    """The whole corpus but the query's own positives."""

    clean: Qrels
    n_docs: int

    @property
    def available(self) -> NDArray[np.int64]:
        """All documents but the query's own."""
        return self.n_docs - np.diff(self.clean.offsets)

    def draw(self, query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return uniform documents."""
        own = self.clean.doc_rows[self.clean.offsets[query] : self.clean.offsets[query + 1]]
        # Places among the documents that are not the query's own, moved past those that are.
        free = rng.choice(self.n_docs - len(own), count, replace=False)
        return np.asarray(free + np.searchsorted(own - np.arange(len(own)), free, side="right"), dtype=np.int64)


@dataclass(frozen=True)
class ListedCandidates:
    """A list for each query: hard false positives from the pretrained ranking."""

    mined: ListedNegatives

    @property
    def available(self) -> NDArray[np.int64]:
        """The lengths of the lists."""
        return np.diff(self.mined.offsets)

    def draw(self, query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return uniform documents of the query's list."""
        listed = self.mined.doc_rows[self.mined.offsets[query] : self.mined.offsets[query + 1]]
        return rng.choice(listed, count, replace=False).astype(np.int64)
