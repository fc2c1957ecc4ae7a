"""Find near-duplicates in a table of texts, and queries of other splits that leak into train."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData, TextTable
from opera.data.copies import equal_positions
from opera.retrieval.nearest import NearestDocuments, exact_search
from opera.retrieval.vectors import Vectors

MAX_CHECKED = 10_000
NEIGHBOURS = 5
NEAR_DUPLICATE_OVERLAP = 0.8
WORD = re.compile(r"\w+")

Candidates = dict[int, float]
"""The near-duplicates of one text: overlap by row of the searched table."""


@dataclass(frozen=True)
class NearDuplicate:
    """Two texts with nearly the same words.

    Attributes:
        id: id of the first text.
        duplicate_id: id of the second text.
        text: the first text.
        duplicate_text: the second text.
        overlap: shared words over all words of both texts (Jaccard), at least 0.8.
    """

    id: str
    duplicate_id: str
    text: str
    duplicate_text: str
    overlap: float


@dataclass(frozen=True)
class Duplicates:
    """Number of texts with a near-duplicate.

    Attributes:
        total: number of texts.
        checked: number of texts checked for near-duplicates: all, or a random 10,000; 0 without a
            model.
        near_duplicates: number of checked texts with a near-duplicate.
        copies: number of all texts that repeat an earlier text, with normalised white space.
        examples: some near-duplicates.
    """

    total: int
    checked: int
    near_duplicates: int
    copies: int
    examples: list[NearDuplicate]


@dataclass(frozen=True)
class Leak:
    """Overlap of a split with train.

    Without a model, only a copy of a training query counts as its near-duplicate.

    Attributes:
        queries: number of queries checked: all, or a random 10,000.
        leaked_queries: number of checked queries with a near-duplicate among the training queries.
        pairs: number of relevant pairs of the checked queries.
        leaked_pairs: number of pairs whose document is also relevant to such a training query.
        examples: leaked queries and their near-duplicates in train.
    """

    queries: int
    leaked_queries: int
    pairs: int
    leaked_pairs: int
    examples: list[NearDuplicate]


def word_overlap(text: str, other: str) -> float:
    """The shared words over all words of both texts (Jaccard); 0 for two texts without words."""
    words, others = (frozenset(WORD.findall(content.lower())) for content in (text, other))
    return len(words & others) / max(1, len(words | others))


def find_near_duplicates(
    texts: Sequence[str],
    embeddings: NDArray[np.float32],
    others: TextTable,
    other_embeddings: Vectors,
    depth: int,
    device: str,
) -> Iterator[Candidates]:
    """Find the near-duplicates of each text among its ``depth`` nearest ``others``.

    Embeddings are float32 ``[texts, dimension]``, unit vectors. If ``others`` contains the text, it
    is its own near-duplicate.
    """
    ranking = exact_search(NearestDocuments(embeddings, others, depth, device), other_embeddings)
    for text, rows in zip(texts, ranking.doc_rows, strict=True):
        neighbours = zip(rows.tolist(), others.texts(rows), strict=True)
        overlaps = ((row, word_overlap(text, other)) for row, other in neighbours)
        yield {row: overlap for row, overlap in overlaps if overlap >= NEAR_DUPLICATE_OVERLAP}


def count_duplicates(
    table: TextTable, embeddings: Vectors | None, seed: int, max_examples: int, device: str = "cpu"
) -> Duplicates:
    """Count the texts of a table with a near-duplicate; check at most 10,000 random texts.

    ``embeddings`` are float32 ``[texts, dimension]``, unit vectors; without them, only copies are
    counted.
    """
    copies = len(np.setdiff1d(table.copies, table.empty_rows()))
    if embeddings is None:
        return Duplicates(len(table), checked=0, near_duplicates=0, copies=copies, examples=[])
    rows = _rows_to_check(len(table), seed)
    all_candidates = find_near_duplicates(
        table.texts(rows), np.array(embeddings[rows]), table, embeddings, NEIGHBOURS + 1, device
    )
    near = {
        row: {other: overlap for other, overlap in candidates.items() if other != row}
        for row, candidates in zip(rows.tolist(), all_candidates, strict=True)
    }
    best = {row: max(others, key=others.__getitem__) for row, others in near.items() if others}
    once = (row for row, other in best.items() if not (other < row and best.get(other) == row))
    examples = [_example(table, row, table, near[row]) for row in islice(once, max_examples)]
    return Duplicates(
        total=len(table),
        checked=len(rows),
        near_duplicates=len(best),
        copies=copies,
        examples=examples,
    )


def find_leak(
    data: RetrievalData,
    split: str,
    train_embeddings: NDArray[np.float32] | None,
    split_embeddings: NDArray[np.float32] | None,
    seed: int,
    max_examples: int,
    device: str = "cpu",
) -> Leak:
    """Find near-duplicates of a split's queries in train; check at most 10,000 random queries.

    The embeddings are float32 ``[queries, dimension]``, unit vectors, of the queries with a
    relevant document. Without them, only copies are found.
    """
    train, held_out = data.training_split(), data.split(split).relevant()
    rows = _rows_to_check(held_out.n_queries, seed)
    held_out = held_out.select_queries(np.isin(np.arange(held_out.n_queries), rows))
    train_queries = data.queries.select(train.query_rows)
    all_candidates: Iterable[Candidates]
    if train_embeddings is None or split_embeddings is None:
        groups = data.query_group
        all_candidates = _copies(groups[held_out.query_rows], groups[train.query_rows])
    else:
        texts = data.queries.texts(held_out.query_rows, "text")
        vectors = np.array(split_embeddings[rows])
        all_candidates = find_near_duplicates(
            texts, vectors, train_queries, train_embeddings, NEIGHBOURS, device
        )
    leaked = {query: candidates for query, candidates in enumerate(all_candidates) if candidates}
    leaked_pairs = 0
    for query, candidates in leaked.items():
        relevant = np.concatenate([_documents(data, train, row) for row in candidates])
        leaked_pairs += int(np.isin(_documents(data, held_out, query), relevant).sum())
    examples = [
        _example(data.queries, int(held_out.query_rows[query]), train_queries, leaked[query])
        for query in islice(leaked, max_examples)
    ]
    return Leak(
        queries=held_out.n_queries,
        leaked_queries=len(leaked),
        pairs=len(held_out.doc_rows),
        leaked_pairs=leaked_pairs,
        examples=examples,
    )


def _copies(groups: IntArray, other_groups: IntArray) -> list[Candidates]:
    """Find the rows of ``other_groups`` with the same text as each row of ``groups``."""
    candidates: list[Candidates] = [{} for _ in groups]
    for row, other in zip(*equal_positions(groups, other_groups), strict=True):
        candidates[row][int(other)] = 1.0
    return candidates


def _documents(data: RetrievalData, qrels: Qrels, query: int) -> NDArray[np.integer]:
    """The groups of the documents that are relevant to a query."""
    return data.document_group[qrels.doc_rows[qrels.offsets[query] : qrels.offsets[query + 1]]]


def _example(
    table: TextTable, row: int, others: TextTable, candidates: Candidates
) -> NearDuplicate:
    """Describe a text and its closest duplicate."""
    other = max(candidates, key=candidates.__getitem__)
    (name, text), (other_id, other_text) = (
        (texts.ids(slice(row, row + 1))[0], texts.texts(slice(row, row + 1))[0])
        for texts, row in ((table, row), (others, other))
    )
    return NearDuplicate(name, other_id, text, other_text, candidates[other])


def _rows_to_check(total: int, seed: int) -> NDArray[np.int64]:
    """Return all rows, or a random 10,000 if there are more."""
    if total <= MAX_CHECKED:
        return np.arange(total)
    return np.sort(generator(seed, "inspect.looked_up").choice(total, MAX_CHECKED, replace=False))
