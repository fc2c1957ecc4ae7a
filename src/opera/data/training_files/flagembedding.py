"""FlagEmbedding's files: lines of ``query``, ``pos`` and ``neg``, and the files of its evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import check_grade, check_id
from opera.data.lines import json_records, text_field
from opera.data.training_files.examples import Example, ExampleStore, Passage

OPTIONAL = ["neg", "pos_scores", "neg_scores", "prompt", "type", "id"]
USED = {"query", "pos", "neg", "pos_scores", "neg_scores", "prompt"}


def read_training(path: Path, split: str, store: ExampleStore) -> Iterator[None]:
    """Add each line of a training file to the store; documents and queries are their texts.

    ``pos_scores`` and ``neg_scores`` are a teacher's scores, null where there is none; ``prompt`` goes before the
    query. ``type``, ``id`` and other columns are not used.

    Raises:
        DataError: naming file, line, rule and value.
    """
    for number, record in json_records(path, ["query", "pos"], OPTIONAL, others=True):
        query = text_field(path, number, record, "query")
        if not query.strip():
            raise DataError(f"{path}:{number}: column 'query' must not be empty")
        positives, negatives = (_passages(path, number, record, key) for key in ("pos", "neg"))
        if not positives:
            raise DataError(f"{path}:{number}: column 'pos' must hold at least one text")
        store.unused |= record.keys() - USED
        prompt = text_field(path, number, record, "prompt")
        store.add(Example(f"{path}:{number}", split, None, query, prompt, positives, negatives))
        yield


def read_texts(path: Path, kind: str, store: ExampleStore) -> Iterator[None]:
    """Add the documents of ``corpus.jsonl``, or the queries of ``SPLIT_queries.jsonl``: an id and a text per line.

    Tevatron's corpus has ``docid`` in place of ``id``.

    Raises:
        DataError: naming file, line, rule and value.
    """
    for number, record in json_records(path, ["text"], ["id", "docid", "title"], others=True):
        place = f"{path}:{number}"
        identifier = identifier_of(place, record, "docid" if "docid" in record else "id")
        title = "" if kind == "queries" else text_field(path, number, record, "title")
        table = store.queries if kind == "queries" else store.documents
        table.add(place, identifier, title, text_field(path, number, record, "text"))
        yield


def read_qrels(path: Path, split: str, store: ExampleStore) -> Iterator[None]:
    """Add the judgements of ``SPLIT_qrels.jsonl``; the texts are added before.

    Raises:
        DataError: naming file, line, rule and value.
    """
    for number, record in json_records(path, ["qid", "docid"], ["relevance"], others=True):
        place = f"{path}:{number}"
        grade = record.get("relevance", 1)
        if isinstance(grade, float) and grade.is_integer():
            grade = int(grade)
        ids = identifier_of(place, record, "qid"), identifier_of(place, record, "docid")
        store.judge(split, place, *ids, check_grade(place, grade))
        yield


def identifier_of(place: str, record: dict[str, Any], key: str) -> str:
    """Return an id, which may be a whole number.

    Raises:
        DataError: if it is missing, empty or of another type.
    """
    value = record.get(key)
    if type(value) is int:
        value = str(value)
    check_id(f"{place}: column '{key}'", value)
    return str(value)


def _passages(path: Path, number: int, record: dict[str, Any], key: str) -> list[Passage]:
    """Return the texts of a column with their scores; none if the column is absent or null."""
    values = record.get(key)
    if values is None:
        values = []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(
            f"{path}:{number}: column '{key}' must be a list of strings, got {shown(values)}"
        )
    if key == "pos" and not all(value.strip() for value in values):
        raise DataError(f"{path}:{number}: column '{key}' holds an empty text")
    return [
        Passage(None, "", *pair)
        for pair in zip(values, _scores(path, number, record, key, values), strict=True)
    ]


def _scores(
    path: Path, number: int, record: dict[str, Any], key: str, texts: list[str]
) -> list[float | None]:
    """Return the score of each text, ``None`` where it has none."""
    scores, place = record.get(f"{key}_scores"), f"{path}:{number}: column '{key}_scores'"
    if scores is None or scores == []:
        return [None] * len(texts)
    if not isinstance(scores, list) or not all(
        s is None or type(s) in (int, float) for s in scores
    ):
        raise DataError(f"{place} must be a list of numbers, got {shown(scores)}")
    if len(scores) != len(texts):
        raise DataError(
            f"{place} has {len(scores)} numbers for the {len(texts)} texts of '{key}'; there must be one for each"
        )
    largest = float(np.finfo(np.float32).max)
    if any(score is not None and abs(score) > largest for score in scores):
        raise DataError(f"{place} holds a number too large for a score, got {shown(scores)}")
    return [None if score is None else float(score) for score in scores]
