"""Tevatron's files: ids are kept, passages stand in the line or in a corpus file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opera.core.errors import DataError
from opera.data import load_data

LINE = {
    "query_id": "17",
    "query": "one",
    "positive_passages": [{"docid": "b", "title": "of b", "text": "a text"}],
    "negative_passages": [{"docid": 4, "text": "four"}],
    "answers": ["x"],
}


def save(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_ids_titles_and_negatives_are_kept(tmp_path: Path) -> None:
    again = {**LINE, "positive_passages": [{"docid": "4", "text": "four"}], "query_id": "18", "query": "two"}
    data = load_data(save(tmp_path / "train.jsonl", LINE, again))
    assert (data.queries.ids(), data.corpus.ids()) == (["17", "18"], ["b", "4"])
    assert data.corpus.texts() == ["of b a text", "four"]
    assert data.split("train").doc_rows.tolist() == [0, 1]
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 1, 1]
    assert data.notes == (
        "1 negatives are also positives of their query and were dropped as negatives",
        "unused columns: answers",
    )


def test_a_folder_has_splits_and_may_name_documents_by_id(tmp_path: Path) -> None:
    save(tmp_path / "corpus.jsonl", {"docid": "x", "text": "ex"}, {"docid": "y", "title": "Y", "text": "why"})
    ids = {"query_id": "1", "query_text": "one", "positive_document_ids": ["y"], "negative_document_ids": ["x"]}
    save(tmp_path / "train.jsonl", ids)
    save(tmp_path / "dev.jsonl", LINE)
    data = load_data(tmp_path)
    assert data.corpus.ids() == ["x", "y", "b", "4"]
    assert data.split("train").doc_rows.tolist() == [1]
    assert data.split("dev").doc_rows.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive_passages": []}, "column 'positive_passages' must hold at least one passage"),
        ({"positive_passages": ["x"]}, "column 'positive_passages' must be a list of objects, got ['x']"),
        ({"positive_passages": [{"docid": "x", "text": " "}]}, "column 'positive_passages' holds an empty passage"),
        ({"positive_passages": [{"docid": "x"}]}, "column 'positive_passages': 'text' must be a string, got None"),
        ({"positive_passages": [{"docid": "", "text": "x"}]}, "column 'positive_passages': 'docid' must not be empty"),
        ({"negative_passages": [{"docid": "b", "text": "x"}]}, "document 'b' has another text than before"),
        ({"positive_document_ids": "x"}, "column 'positive_document_ids' must be a list of ids, got 'x'"),
        ({"positive_document_ids": ["x"]}, "document 'x' has no text in the files that were read"),
        ({"query": ""}, "column 'query' must not be empty"),
        ({"query": "other"}, "query '17' has another text than before; give it its own id"),
        ({"query_id": []}, "column 'query_id' must be a string, got []"),
    ],
)
def test_a_bad_line_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "train.jsonl", LINE, {**LINE, **change})
    with pytest.raises(DataError) as caught:
        load_data(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")
