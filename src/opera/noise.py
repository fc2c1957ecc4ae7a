"""False positives put into the training pairs on purpose, to study label noise (Section 3.5, Appendix C.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.data import Judgements
from opera.methods.pairs import BoolArray, IntArray
from opera.mine import ListedNegatives
from opera.rng import generator

Candidates = Callable[[int, np.random.Generator, int], NDArray[np.int64]]
"""Gives up to ``count`` corpus rows that may stand as false positives of a training query."""


@dataclass(frozen=True)
class NoisyTraining:
    """Training judgements of which some are false.

    Attributes:
        judgements: true and false together; the false ones keep the grade they were judged with, 0 where unjudged.
        injected: bool ``[M]``, which of them are false.
    """

    judgements: Judgements
    injected: BoolArray

    @classmethod
    def of(cls, clean: Judgements, query_rows: IntArray, doc_rows: IntArray, grades: IntArray) -> NoisyTraining:
        """Add false judgements, given as rows of the query table, rows of the corpus and grades, each ``[F]``."""
        query = np.concatenate([clean.query_rows[clean.query_of], query_rows])
        doc = np.concatenate([clean.doc_rows, doc_rows])
        grade = np.concatenate([clean.grades, grades])
        injected = np.arange(len(query)) >= len(clean.doc_rows)
        return cls(Judgements.of(query, doc, grade), injected[np.lexsort((doc, query))])

    @property
    def count(self) -> int:
        """How many are false."""
        return int(self.injected.sum())


def graded_down(clean: Judgements, judged: Judgements, relevant_grade: int, noise_grade: int) -> NoisyTraining:
    """Let in documents judged below what counts as relevant: the paper's ANTIQUE setup (Appendix C.4).

    Args:
        clean: the relevant judgements of train.
        judged: all judgements of train, with their original grades.
        relevant_grade: lowest grade that counts as relevant (ANTIQUE: 3).
        noise_grade: lowest grade let in as a false positive (ANTIQUE: 2).
    """
    falsely = (judged.grades >= noise_grade) & (judged.grades < relevant_grade)
    return NoisyTraining.of(
        clean, judged.query_rows[judged.query_of[falsely]], judged.doc_rows[falsely], judged.grades[falsely]
    )


def false_positive_count(n_pairs: int, share: float) -> int:
    """How many false pairs make up ``share`` of all, beside ``n_pairs`` true ones: ⌊share/(1 - share)·N⌋."""
    return math.floor(share / (1 - share) * n_pairs + 1e-9)


def drawn_false_positives(clean: Judgements, share: float, seed: int, candidates: Candidates) -> NoisyTraining:
    """Add false positives until ``share`` of all pairs are false, or the candidates run out.

    Each goes to the query of a true pair drawn at random, so queries get them in proportion to their positives.

    Args:
        clean: the relevant judgements of train.
        share: of all pairs that are then false.
        seed: of the draws.
        candidates: gives documents for one query: :func:`random_candidates` or :func:`listed_candidates`.
    """
    count = false_positive_count(len(clean.doc_rows), share)
    owners = clean.query_of[generator(seed, "noise.queries").integers(len(clean.doc_rows), size=count)]
    wanted = np.bincount(owners, minlength=clean.n_queries)
    rng = generator(seed, "noise.documents")
    queries, docs = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for query in np.flatnonzero(wanted):
        docs.append(candidates(int(query), rng, int(wanted[query])))
        queries.append(np.full(len(docs[-1]), clean.query_rows[query], dtype=np.int64))
    falsely = np.concatenate(docs)
    return NoisyTraining.of(clean, np.concatenate(queries), falsely, np.zeros(len(falsely), dtype=np.int64))


def random_candidates(clean: Judgements, n_docs: int) -> Candidates:
    """Draw from the whole corpus but the query's own positives, without repeats."""

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        own = clean.doc_rows[clean.offsets[query] : clean.offsets[query + 1]]
        # Places among the documents that are not the query's own, moved past those that are.
        free = rng.choice(n_docs - len(own), min(count, n_docs - len(own)), replace=False)
        return np.asarray(free + np.searchsorted(own - np.arange(len(own)), free, side="right"), dtype=np.int64)

    return draw


def listed_candidates(mined: ListedNegatives) -> Candidates:
    """Draw from a list for each query, without repeats: hard false positives from the pretrained ranking."""

    def draw(query: int, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        listed = mined.doc_rows[mined.offsets[query] : mined.offsets[query + 1]]
        return rng.choice(listed, min(count, len(listed)), replace=False).astype(np.int64)

    return draw
