"""BGE/FlagEmbedding training files: JSON Lines with ``query``, ``pos`` and ``neg``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.lines import json_records, text_field
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, load_or_parse

OPTIONAL = ["neg", "pos_scores", "neg_scores", "prompt", "type", "id"]


def load_flagembedding(path: Path) -> RetrievalData:
    """Read a ``.jsonl`` file as the train split; the corpus is the distinct texts of ``pos`` and ``neg``.

    Document ids are ``d0``, ``d1``, ... and query ids ``q0``, ``q1``, ... in order of first appearance. Lines with
    the same query are merged. ``pos_scores``, ``neg_scores``, ``prompt``, ``type`` and ``id`` are allowed but not used;
    a note lists them.

    Raises:
        DataError: naming file, line, rule and value.
    """

    def parse(builder: DataBuilder) -> None:
        texts = _TextCollector()
        for number, record in json_records(path, ["query", "pos"], OPTIONAL):
            query = text_field(path, number, record, "query")
            if not query.strip():
                raise DataError(f"{path}:{number}: column 'query' must not be empty")
            positives = _text_list(path, number, record, "pos")
            if not positives:
                raise DataError(f"{path}:{number}: column 'pos' must hold at least one text")
            negatives = _text_list(path, number, record, "neg")
            for key, values in (("pos", positives), ("neg", negatives)):
                _check_scores(path, number, record, key, values)
            texts.add(query, positives, negatives, set(record) - {"query", "pos", "neg"})
        if not texts.positives:
            raise DataError(f"{path}: is empty: no training pairs")
        texts.store(builder)

    return load_or_parse(lambda: digest_files([path], "flag"), path.stem, str(path), parse)


class _TextCollector:
    """Collects distinct queries and documents, numbered in order of first appearance."""

    def __init__(self) -> None:
        self.queries: dict[str, int] = {}
        self.docs: dict[str, int] = {}
        self.positives: list[dict[int, None]] = []
        self.negatives: list[dict[int, None]] = []
        self.lines = 0
        self.unused: set[str] = set()

    def add(self, query: str, positives: list[str], negatives: list[str], unused: set[str]) -> None:
        self.lines += 1
        self.unused |= unused
        row = self.queries.setdefault(query, len(self.queries))
        if row == len(self.positives):
            self.positives.append({})
            self.negatives.append({})
        for texts, docs in ((positives, self.positives), (negatives, self.negatives)):
            for text in texts:
                docs[row][self.docs.setdefault(text, len(self.docs))] = None

    def store(self, builder: DataBuilder) -> None:
        builder.write_texts("corpus", ((f"d{row}", "", text) for text, row in self.docs.items()))
        builder.write_texts("queries", ((f"q{row}", "", text) for text, row in self.queries.items()))
        query = np.repeat(np.arange(len(self.positives)), [len(docs) for docs in self.positives])
        doc = np.array([doc for docs in self.positives for doc in docs])
        builder.splits["train"] = Qrels.from_arrays(query, doc, np.ones(len(doc), dtype=np.int32))
        kept = [[d for d in neg if d not in pos] for neg, pos in zip(self.negatives, self.positives, strict=True)]
        if any(kept):
            offsets = np.concatenate([[0], np.cumsum([len(docs) for docs in kept])]).astype(np.int64)
            rows = np.array([doc for docs in kept for doc in docs], dtype=np.int32)
            builder.given_negatives = GivenNegatives(offsets, rows)
        both = sum(len(neg) for neg in self.negatives) - sum(len(neg) for neg in kept)
        if both:
            builder.notes.append(f"{both} negatives are also positives of their query and were dropped as negatives")
        if self.lines > len(self.queries):
            builder.notes.append(f"merged {self.lines - len(self.queries)} lines with a repeated query")
        if self.unused:
            builder.notes.append(f"unused columns: {', '.join(sorted(self.unused))}")


def _text_list(path: Path, number: int, record: dict[str, Any], key: str) -> list[str]:
    """Return a column of texts, an empty list if it is absent or null."""
    values = record.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{path}:{number}: column '{key}' must be a list of strings, got {shown(values)}")
    if key == "pos" and not all(value.strip() for value in values):
        raise DataError(f"{path}:{number}: column '{key}' holds an empty text")
    return values


def _check_scores(path: Path, number: int, record: dict[str, Any], key: str, texts: list[str]) -> None:
    """Check that scores, which are not used, fit the texts: where they do not, texts were lost or moved."""
    scores = record.get(f"{key}_scores")
    if scores is None or scores == []:
        return
    if not isinstance(scores, list) or not all(s is None or type(s) in (int, float) for s in scores):
        raise DataError(f"{path}:{number}: column '{key}_scores' must be a list of numbers, got {shown(scores)}")
    if len(scores) != len(texts):
        raise DataError(
            f"{path}:{number}: column '{key}_scores' has {len(scores)} numbers for the {len(texts)} texts of '{key}'; "
            "there must be one for each"
        )
