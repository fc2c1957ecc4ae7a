"""Near-duplicates within a table of texts, and test queries that leak into train."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data import Qrels, RetrievalData, TextTable
from opera.encoder.embeddings import Vectors
from opera.retrieval.nearest import exact_search

MAX_CHECKED = 10_000
NEIGHBOURS = 5
CHUNK_ROWS = 50_000
NEAR_DUPLICATE_OVERLAP = 0.8
WORD = re.compile(r"\w+")

Candidates = list[tuple[int, float]]
"""Near-duplicates of one text: (row of the searched table, overlap)."""


@dataclass(frozen=True)
class NearDuplicate:
    """Two texts with nearly the same words.

    Attributes:
        id: id of the first text.
        duplicate_id: id of the second.
        text: the first text.
        duplicate_text: the second.
        overlap: shared words over all words of both (Jaccard), at least 0.8.
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
        checked: number of texts checked for near-duplicates: all, or a random 10,000.
        near_duplicates: number of checked texts with a near-duplicate.
        copies: number of texts, of all, that are exact copies of an earlier one.
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

    Attributes:
        queries: number of queries checked: all, or a random 10,000.
        leaked_queries: number of checked queries with a near-duplicate among the training queries.
        pairs: number of relevant pairs of the checked queries.
        leaked_pairs: number of these pairs whose document is also labelled for such a training
            query.
        documents: number of distinct documents relevant to the checked queries.
        shared_documents: number of these documents that are also relevant in train.
        examples: leaked queries and their near-duplicates in train.
    """

    queries: int
    leaked_queries: int
    pairs: int
    leaked_pairs: int
    documents: int
    shared_documents: int
    examples: list[NearDuplicate]


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(WORD.findall(text.lower()))


def word_overlap(words: frozenset[str], other_words: frozenset[str]) -> float:
    """Shared words over all words of both (Jaccard); 0 for two texts without words."""
    return len(words & other_words) / max(1, len(words | other_words))


def find_near_duplicates(
    texts: Sequence[str],
    embeddings: Vectors,
    others: TextTable,
    other_embeddings: Vectors,
    depth: int,
    device: str,
) -> list[Candidates]:
    """Find near-duplicates of texts: those of their ``depth`` nearest that share at least 80% of
    their words.

    Args:
        texts: the texts to check.
        embeddings: float32 ``[texts, dimension]``, rows of length 1.
        others: the texts to search.
        other_embeddings: float32 ``[others, dimension]``, rows of length 1.
        depth: how many to look at.
        device: where to multiply.

    Returns:
        For each text, (row of ``others``, overlap) of its near-duplicates; its own row too, if it
        is one of them.
    """
    ranking = exact_search(embeddings, other_embeddings, others, depth, device)
    duplicates: list[Candidates] = []
    for text, rows in zip(texts, ranking.doc_rows, strict=True):
        words = words_of(text)
        overlaps = (
            (int(row), word_overlap(words, words_of(other)))
            for row, other in zip(rows, others.texts(rows), strict=True)
        )
        duplicates.append(
            [(row, overlap) for row, overlap in overlaps if overlap >= NEAR_DUPLICATE_OVERLAP]
        )
    return duplicates


def count_duplicates(
    table: TextTable, embeddings: Vectors, seed: int, max_examples: int, device: str = "cpu"
) -> Duplicates:
    """Count the near-duplicates within a table, or of a random 10,000 of its texts if it has more.

    Args:
        table: the texts.
        embeddings: float32 ``[texts, dimension]``, rows of length 1.
        seed: of the random sample.
        max_examples: how many examples to return.
        device: where to multiply.
    """
    rows = _rows_to_check(len(table), seed)
    own = np.array(embeddings[rows])
    duplicates = find_near_duplicates(
        table.texts(rows), own, table, embeddings, NEIGHBOURS + 1, device
    )
    near_duplicates = 0
    examples: list[NearDuplicate] = []
    shown: set[frozenset[int]] = set()
    for own_row, candidates in zip(rows.tolist(), duplicates, strict=True):
        others = [(row, overlap) for row, overlap in candidates if row != own_row]
        if not others:
            continue
        near_duplicates += 1
        pair = frozenset((own_row, max(others, key=lambda duplicate: duplicate[1])[0]))
        if len(examples) < max_examples and pair not in shown:
            shown.add(pair)
            examples.append(_example(table, own_row, others, table))
    return Duplicates(len(table), len(rows), near_duplicates, _count_copies(table), examples)


def find_leak(
    data: RetrievalData,
    split: str,
    train_embeddings: NDArray[np.float32],
    split_embeddings: NDArray[np.float32],
    seed: int,
    max_examples: int,
    device: str = "cpu",
) -> Leak:
    """Find near-duplicates of a split's queries in train, or of a random 10,000 of them if it has
    more.

    Args:
        data: the data set.
        split: the split to check.
        train_embeddings: float32 ``[n, dimension]``, rows of length 1, the training queries with a
            relevant document.
        split_embeddings: float32 ``[m, dimension]``, rows of length 1, the queries of the split
            with one.
        seed: of the random sample.
        max_examples: how many examples to return.
        device: where to multiply.
    """
    train, held_out = data.training_split(), data.split(split).relevant()
    rows = _rows_to_check(held_out.n_queries, seed)
    checked = np.zeros(held_out.n_queries, dtype=bool)
    checked[rows] = True
    held_out = held_out.select_queries(checked)
    train_queries = data.queries.select(train.query_rows)
    duplicates = find_near_duplicates(
        data.queries.texts(held_out.query_rows, "text"),
        np.array(split_embeddings[rows]),
        train_queries,
        train_embeddings,
        NEIGHBOURS,
        device,
    )
    leaked_queries = [query for query, candidates in enumerate(duplicates) if candidates]
    documents = np.unique(held_out.doc_rows)
    return Leak(
        queries=held_out.n_queries,
        leaked_queries=len(leaked_queries),
        pairs=len(held_out.doc_rows),
        leaked_pairs=sum(
            _leaked_pairs(query, duplicates[query], held_out, train) for query in leaked_queries
        ),
        documents=len(documents),
        shared_documents=int(np.isin(documents, train.doc_rows).sum()),
        examples=[
            _example(
                data.queries, int(held_out.query_rows[query]), duplicates[query], train_queries
            )
            for query in leaked_queries[:max_examples]
        ],
    )


def _leaked_pairs(query: int, duplicates: Candidates, held_out: Qrels, train: Qrels) -> int:
    """Count the pairs of a held-out query whose document is labelled for one of its duplicates in
    train.
    """
    labelled = {
        int(doc)
        for row, _ in duplicates
        for doc in train.doc_rows[train.offsets[row] : train.offsets[row + 1]]
    }
    own_docs = held_out.doc_rows[held_out.offsets[query] : held_out.offsets[query + 1]]
    return sum(int(doc) in labelled for doc in own_docs)


def _example(
    table: TextTable, row: int, duplicates: Candidates, others: TextTable
) -> NearDuplicate:
    """Describe a text and its closest duplicate among ``others``."""
    other, overlap = max(duplicates, key=lambda duplicate: duplicate[1])
    (name, text), (other_name, other_text) = (
        (part.ids(slice(at, at + 1))[0], part.texts(slice(at, at + 1))[0])
        for part, at in ((table, row), (others, other))
    )
    return NearDuplicate(name, other_name, text, other_text, overlap)


def _rows_to_check(total: int, seed: int) -> NDArray[np.int64]:
    """Return all rows, or a random 10,000 if there are more."""
    if total <= MAX_CHECKED:
        return np.arange(total)
    return np.sort(generator(seed, "inspect.looked_up").choice(total, MAX_CHECKED, replace=False))


def _count_copies(table: TextTable) -> int:
    """Count the texts that repeat an earlier one up to case and white space, by 8-byte hashes;
    empty ones are none.
    """
    hashes = np.empty(len(table), dtype=np.uint64)
    for start in range(0, len(table), CHUNK_ROWS):
        for row, text in enumerate(table.texts(slice(start, start + CHUNK_ROWS)), start=start):
            digest = hashlib.blake2b(
                " ".join(text.lower().split()).encode(), digest_size=8
            ).digest()
            hashes[row] = int.from_bytes(digest, "little")
    full = np.delete(hashes, table.empty_rows())
    return len(full) - len(np.unique(full))
