"""Texts that stand twice, and texts of the test split that stand in train."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data import RetrievalData, TextTable
from opera.retrieval.search import exact_search

LOOKED_UP = 10_000
NEIGHBOURS = 6
SLICE = 50_000
SAME_WORDS = 0.8
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Twin:
    """Two texts with nearly the same words.

    Attributes:
        text_id: of the one.
        twin_id: of the other.
        text: the one.
        twin: the other.
        overlap: shared words over all words of both (Jaccard), at least 0.8.
    """

    text_id: str
    twin_id: str
    text: str
    twin: str
    overlap: float


@dataclass(frozen=True)
class Duplicates:
    """How many texts have a near-duplicate.

    Attributes:
        looked_up: how many texts were looked up; a random part where there are more than 10,000.
        near: how many of those have a near-duplicate.
        copies: texts, of all, that repeat an earlier one word for word.
        total: how many texts there are.
        examples: some of them.
    """

    looked_up: int
    near: int
    copies: int
    total: int
    examples: list[Twin]


@dataclass(frozen=True)
class Leak:
    """What of the test split stands in train.

    Attributes:
        queries: test queries that were looked up: all, or a random 10,000.
        near_queries: of those, how many have a near-duplicate among the training queries.
        pairs: relevant test pairs.
        leaked_pairs: of those, how many have their document labelled for such a training query too.
        documents: distinct documents relevant in test.
        shared_documents: of those, how many are relevant in train too.
        examples: test queries and their training twins.
    """

    queries: int
    near_queries: int
    pairs: int
    leaked_pairs: int
    documents: int
    shared_documents: int
    examples: list[Twin]


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(WORD.findall(text.lower()))


def word_overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words over all words of both (Jaccard); 0 for two texts without a word."""
    return len(one & other) / max(1, len(one | other))


def near_twins(
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    others: TextTable,
    other_vectors: NDArray[np.float32],
    same: bool,
    device: str,
) -> list[list[tuple[int, float]]]:
    """Find near-duplicates: among the nearest by the model's vectors, those that share 80% of their words.

    Args:
        texts: what to look up.
        vectors: float32 ``[texts, dimension]``, unit vectors.
        others: where to look.
        other_vectors: float32 ``[others, dimension]``, unit vectors.
        same: whether ``texts`` stand in ``others`` themselves, so that each finds itself.
        device: where to multiply.

    Returns:
        For each text, the rows of ``others`` that are near-duplicates, with their overlaps; with ``same`` a text's own
        row is among them.
    """
    ranking = exact_search(vectors, other_vectors, others, NEIGHBOURS if same else NEIGHBOURS - 1, device)
    found: list[list[tuple[int, float]]] = []
    for text, rows in zip(texts, ranking.doc_rows, strict=True):
        own = words_of(text)
        overlaps = ((int(row), word_overlap(own, words_of(t))) for row, t in zip(rows, others.texts(rows), strict=True))
        found.append([(row, overlap) for row, overlap in overlaps if overlap >= SAME_WORDS])
    return found


def duplicates(
    table: TextTable, vectors: NDArray[np.float32], seed: int, examples: int, device: str = "cpu"
) -> Duplicates:
    """Count the near-duplicates within a table; past 10,000 texts, of a random 10,000 of them.

    Args:
        table: the texts.
        vectors: float32 ``[texts, dimension]``, their unit vectors.
        seed: of the random part.
        examples: how many to show.
        device: where to multiply.
    """
    rows = _looked_up(len(table), seed)
    texts = table.texts(rows)
    found = near_twins(texts, np.array(vectors[rows]), table, vectors, same=True, device=device)
    twins = [[(row, overlap) for row, overlap in near if row != own] for own, near in zip(rows, found, strict=True)]
    having = [at for at, near in enumerate(twins) if near]
    shown: list[Twin] = []
    seen: set[frozenset[int]] = set()
    for at in having:
        row, overlap = max(twins[at], key=lambda twin: twin[1])
        if len(shown) < examples and frozenset((int(rows[at]), row)) not in seen:
            seen.add(frozenset((int(rows[at]), row)))
            ids, pair = table.ids(np.array([rows[at], row])), table.texts(np.array([rows[at], row]))
            shown.append(Twin(ids[0], ids[1], pair[0], pair[1], overlap))
    return Duplicates(len(rows), len(having), _copies(table), len(table), shown)


def _looked_up(total: int, seed: int) -> NDArray[np.int64]:
    """Return all rows, or a random 10,000 of more."""
    if total <= LOOKED_UP:
        return np.arange(total)
    return np.sort(generator(seed, "inspect.looked_up").choice(total, LOOKED_UP, replace=False))


def _copies(table: TextTable) -> int:
    """Count the texts that repeat an earlier one but for case and white space: 8 bytes a text, by their hashes."""
    hashes = np.empty(len(table), dtype=np.uint64)
    for start in range(0, len(table), SLICE):
        for at, text in enumerate(table.texts(slice(start, start + SLICE)), start=start):
            digest = hashlib.blake2b(" ".join(text.lower().split()).encode(), digest_size=8).digest()
            hashes[at] = int.from_bytes(digest, "little")
    return len(hashes) - len(np.unique(hashes))


def leak(
    data: RetrievalData,
    split: str,
    train_vectors: NDArray[np.float32],
    vectors: NDArray[np.float32],
    seed: int,
    examples: int,
    device: str = "cpu",
) -> Leak:
    """Look for the queries of a split in train; past 10,000, for a random 10,000 of them.

    Args:
        data: the data set.
        split: the split to look for.
        train_vectors: float32 ``[n, dimension]``, unit vectors of the training queries that have a relevant document.
        vectors: float32 ``[m, dimension]``, the same of the split's.
        seed: of the random part.
        examples: how many twins to show.
        device: where to multiply.
    """
    train, held_out = data.training_split(), data.split(split).relevant()
    rows = _looked_up(held_out.n_queries, seed)
    keep = np.zeros(held_out.n_queries, dtype=bool)
    keep[rows] = True
    held_out = held_out.select_queries(keep)
    table = TextTable(data.queries.table.take(train.query_rows))
    texts, ids = data.queries.texts(held_out.query_rows, "text"), data.queries.ids(held_out.query_rows)
    found = near_twins(texts, np.array(vectors[rows]), table, train_vectors, same=False, device=device)
    leaked = 0
    shown: list[Twin] = []
    for at, near in enumerate(found):
        known = {int(d) for row, _ in near for d in train.doc_rows[train.offsets[row] : train.offsets[row + 1]]}
        leaked += sum(int(d) in known for d in held_out.doc_rows[held_out.offsets[at] : held_out.offsets[at + 1]])
        if near and len(shown) < examples:
            row, overlap = max(near, key=lambda twin: twin[1])
            twin = np.array([row])
            shown.append(Twin(ids[at], table.ids(twin)[0], texts[at], table.texts(twin)[0], overlap))
    documents = np.unique(held_out.doc_rows)
    return Leak(
        queries=held_out.n_queries,
        near_queries=sum(bool(near) for near in found),
        pairs=len(held_out.doc_rows),
        leaked_pairs=leaked,
        documents=len(documents),
        shared_documents=int(np.isin(documents, train.doc_rows).sum()),
        examples=shown,
    )
