"""Qrels from the rows of pairs: grades, weights, and pairs that occur more than once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.data.pairs import pair_keys, split_keys
from opera.data.qrels import GivenNegatives, Qrels


@dataclass
class Pairs:
    """Pairs of all splits, in the order of the files.

    Attributes:
        query: row of each pair's query: int32 ``[M]``.
        doc: row of its document, likewise.
        split: number of its split: int8 ``[M]``.
        grade: as the files have it, NaN where a file has none: float32 ``[M]``; ``None`` where no file has one.
        weight: likewise.
    """

    query: NDArray[np.int32]
    doc: NDArray[np.int32]
    split: NDArray[np.int8]
    grade: NDArray[np.float32] | None
    weight: NDArray[np.float32] | None

    @property
    def relevant(self) -> BoolArray:
        """Whether each pair is relevant: bool ``[M]``."""
        positive = (
            np.ones(len(self.query), dtype=bool) if self.grade is None else ~(self.grade <= 0)
        )
        return positive if self.weight is None else positive & ~(self.weight <= 0)

    def fractional(self, split: int) -> bool:
        """Whether a split has a grade that is no whole number."""
        return self.grade is not None and _fractional(self.grade[self.split == split])

    def sorted(self) -> Pairs:
        """Return the pairs by split, query and document, those that are repeated in their order."""
        order = np.lexsort((self.doc, self.query, self.split))
        grade, weight = (
            None if values is None else values[order] for values in (self.grade, self.weight)
        )
        return Pairs(self.query[order], self.doc[order], self.split[order], grade, weight)

    def qrels(self, split: int, notes: list[str], name: str) -> Qrels:
        """Build the qrels of a split from sorted pairs; repeated ones are merged: highest grade, summed weight.

        Args:
            split: its number.
            notes: gets what was merged, filled in, or read otherwise than it stands there.
            name: of the split, for the notes.
        """
        own = slice(*np.searchsorted(self.split, [split, split + 1]))
        query, doc = self.query[own], self.doc[own]
        grade, weight = (
            _filled(None if values is None else values[own], what, notes, name)
            for values, what in ((self.grade, "grade"), (self.weight, "weight"))
        )
        if grade is not None and _fractional(grade):
            rule = (
                "say only which pairs are relevant" if weight is not None else "are read as weights"
            )
            notes.append(f"{name}: grades with fractions {rule}: those above 0, with grade 1")
            weight = np.maximum(grade, 0) if weight is None else weight
            grade = (grade > 0).astype(np.float32)
        starts = np.flatnonzero(_begins(query, doc))
        if merged := len(query) - len(starts):
            rules = {"grades: the highest": grade, "weights: the sum": weight}
            how = ", ".join(rule for rule, values in rules.items() if values is not None)
            notes.append(f"{name}: merged {merged:,} repeated pairs" + (f" ({how})" if how else ""))
        grades = np.ones(len(starts), dtype=np.int32)
        if grade is not None and len(starts):
            grades = np.maximum.reduceat(grade, starts).astype(np.int32)
        weights = None
        if weight is not None:
            weights = np.add.reduceat(weight, starts, dtype=np.float64).astype(np.float32)
            if dropped := int(((weights == 0) & (grades > 0)).sum()):
                notes.append(f"{name}: {dropped:,} pairs of weight 0 are not relevant")
            grades = np.where(weights > 0, grades, np.minimum(grades, 0)).astype(np.int32)
        return Qrels.from_arrays(query[starts], doc[starts], grades, weights)


def _fractional(grade: NDArray[np.float32]) -> bool:
    known = grade[np.isfinite(grade)]
    return bool((known != np.floor(known)).any())


def _filled(
    values: NDArray[np.float32] | None, what: str, notes: list[str], name: str
) -> NDArray[np.float32] | None:
    """Fill in 1 where the file of a pair has no such number; ``None`` where no pair has one."""
    missing = np.ones(0, dtype=bool) if values is None else np.isnan(values)
    if values is None or missing.all():
        return None
    if missing.any():
        notes.append(
            f"{name}: {missing.sum():,} of {len(values):,} pairs have no {what} in their file: it is 1"
        )
    return np.where(missing, np.float32(1), values)


def _begins(query: NDArray[np.int32], doc: NDArray[np.int32]) -> BoolArray:
    """Whether each of the sorted pairs differs from the one before: bool."""
    return np.concatenate(
        [np.ones(min(1, len(query)), dtype=bool), (query[1:] != query[:-1]) | (doc[1:] != doc[:-1])]
    )


def given_negatives(
    query: NDArray[np.int32], doc: NDArray[np.int32], train: Qrels, n_queries: int
) -> GivenNegatives | None:
    """Return the distinct negatives of train queries that are no relevant documents of theirs.

    Args:
        query: row of each negative's query: int32.
        doc: row of the negative, likewise.
        train: the train split.
        n_queries: rows of the query table.
    """
    relevant = train.relevant()
    queries, documents = split_keys(np.setdiff1d(pair_keys(query, doc), relevant.keys))
    if len(queries) == 0:
        return None
    counts = np.bincount(queries, minlength=n_queries)
    return GivenNegatives(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), documents.astype(np.int32)
    )
