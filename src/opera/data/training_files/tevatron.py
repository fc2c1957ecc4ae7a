"""Tevatron's files: lines of a query and its passages, whole or as ids of a corpus file beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import check_id
from opera.data.lines import json_records, text_field
from opera.data.training_files.examples import Example, ExampleStore, Passage
from opera.data.training_files.flagembedding import identifier_of

PASSAGES = {"positive": "positive_passages", "negative": "negative_passages"}
IDS = {"positive": "positive_document_ids", "negative": "negative_document_ids"}
KNOWN = ["query_id", "query", "query_text", *PASSAGES.values(), *IDS.values()]


def read_training(path: Path, split: str, store: ExampleStore) -> Iterator[None]:
    """Add each line of a training file to the store; ids are kept.

    Raises:
        DataError: naming file, line, rule and value.
    """
    for number, record in json_records(path, [], KNOWN, others=True):
        place = f"{path}:{number}"
        column = "query" if "query" in record else "query_text"
        query = text_field(path, number, record, column)
        if not query.strip():
            raise DataError(f"{place}: column '{column}' must not be empty")
        query_id = (
            None if record.get("query_id") is None else identifier_of(place, record, "query_id")
        )
        positives, negatives = (_passages(place, record, kind) for kind in ("positive", "negative"))
        if not positives:
            raise DataError(
                f"{place}: column '{PASSAGES['positive']}' must hold at least one passage"
            )
        store.unused |= record.keys() - set(KNOWN)
        store.add(Example(place, split, query_id, query, "", positives, negatives))
        yield


def _passages(place: str, record: dict[str, Any], kind: str) -> list[Passage]:
    """Return the passages of a line, from whichever of the two columns it has."""
    if record.get(IDS[kind]) is not None:
        ids = record[IDS[kind]]
        if not isinstance(ids, list):
            raise DataError(
                f"{place}: column '{IDS[kind]}' must be a list of ids, got {shown(ids)}"
            )
        return [
            Passage(identifier_of(place, {IDS[kind]: value}, IDS[kind]), "", None) for value in ids
        ]
    column = PASSAGES[kind]
    values = record.get(column)
    if values is None:
        values = []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(
            f"{place}: column '{column}' must be a list of objects, got {shown(values)}"
        )
    passages = [_passage(place, column, value) for value in values]
    if kind == "positive" and not all(
        f"{passage.title}{passage.text}".strip() for passage in passages
    ):
        raise DataError(f"{place}: column '{column}' holds an empty passage")
    return passages


def _passage(place: str, column: str, value: dict[str, Any]) -> Passage:
    title, text = value.get("title"), value.get("text")
    title = "" if title is None else title
    for key, content in (("title", title), ("text", text)):
        if not isinstance(content, str):
            raise DataError(
                f"{place}: column '{column}': '{key}' must be a string, got {shown(content)}"
            )
    identifier = value.get("docid")
    if type(identifier) is int:
        identifier = str(identifier)
    if identifier is not None:
        check_id(f"{place}: column '{column}': 'docid'", identifier)
    return Passage(identifier, title, text)
