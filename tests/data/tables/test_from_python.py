"""``RetrievalData.from_pairs``: lists, dictionaries, DataFrames, ``datasets`` and pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from opera import DataError, RetrievalData, SettingError, load_data

QUERIES, DOCUMENTS = ["one", "two"], ["a", "b", "c"]
TEXTS = datasets.Dataset.from_dict({"query": ["a"], "document": ["b"]})
TABLE = {"id": [0, 1, 2], "text": DOCUMENTS}


def test_aligned_lists() -> None:
    data = RetrievalData.from_pairs([*QUERIES, "one"], DOCUMENTS)
    assert data.queries.texts() == QUERIES
    assert data.corpus.texts() == DOCUMENTS
    assert data.split("train").doc_rows.tolist() == [0, 2, 1]
    assert data.notes == ()


@pytest.mark.parametrize(
    "documents",
    [
        DOCUMENTS,
        {"0": "a", "1": "b", "2": "c"},
        {0: "a", 1: "b", 2: "c"},
        TABLE,
        pd.DataFrame(TABLE),
        pa.table(TABLE),
        datasets.Dataset.from_dict(TABLE),
        pd.Series(DOCUMENTS),
        np.array(DOCUMENTS),
        [{"id": row, "text": text} for row, text in enumerate(DOCUMENTS)],
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1, 2), (1, 0, 1)],
        pd.DataFrame({"query_id": [0, 1], "doc_id": [1, 0], "grade": [2.0, 1.0]}),
        datasets.Dataset.from_dict({"query": ["0", "1"], "document": ["1", "0"], "score": [2, 1]}),
        np.array([[0, 1, 2], [1, 0, 1]]),
        [{"query": 0, "document": 1, "grade": 2}, {"grade": 1, "document": 0, "query": 1}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_kinds_of_tables(documents: Any, pairs: Any) -> None:
    data = RetrievalData.from_pairs(QUERIES, documents, pairs, name="mine")
    train = data.split("train")
    assert (train.query_rows.tolist(), train.doc_rows.tolist(), train.grades.tolist()) == ([0, 1], [1, 0], [2, 1])
    assert data.corpus.ids() == ["0", "1", "2"]
    assert (data.name, data.source) == ("mine", "memory:mine")
    assert RetrievalData.from_pairs(QUERIES, documents, pairs).fingerprint == data.fingerprint


@pytest.mark.parametrize(
    "pairs",
    [
        [("q", 1, 2), (5, "2", "1")],
        [{"query": "q", "document": 1, "grade": "2"}, {"query": np.int64(5), "document": "2", "grade": 1}],
        {"query": ["q", 5.0], "document": [1, "2"], "grade": [2, 1]},
        pd.DataFrame({"query_id": ["q", 5], "doc_id": [1, "2"], "grade": ["2", 1.0]}),
        np.array([["q", 1, 2], [5, "2", 1]], dtype=object),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "documents",
    [
        {1: "a", "2": "b"},
        pd.Series(["a", "b"], index=[1, "2"]),
        pd.DataFrame({"id": [1, "2"], "text": ["a", "b"]}),
        [{"id": 1, "text": "a"}, {"id": "2", "text": "b"}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_and_texts_in_one_column_are_texts(documents: Any, pairs: Any) -> None:
    data = RetrievalData.from_pairs({"q": "one", 5: "two"}, documents, pairs)
    assert (data.queries.ids(), data.corpus.ids()) == (["q", "5"], ["1", "2"])
    assert data.split("train").doc_rows.tolist() == [0, 1]
    assert data.split("train").grades.tolist() == [2, 1]


def test_texts_and_lists_in_one_column_are_lists() -> None:
    frame = pd.DataFrame({"query": ["a", "b"], "document": ["c", 7], "negative": [["x", None, np.nan, ""], "y"]})
    data = RetrievalData.from_pairs(pairs=frame)
    assert data.corpus.texts() == ["c", "7", "x", "y"]
    assert data.given_negatives is not None
    assert data.given_negatives.doc_rows.tolist() == [2, 3]


def test_a_table_of_texts_with_columns() -> None:
    frame = pd.DataFrame({"question": QUERIES, "said": ["a", "b"], "clicks": [3, 1.5]})
    for columns in ({"document": "said"}, {"document": ["said"]}, "document=said", ["document=said"]):
        data = RetrievalData.from_pairs(pairs=frame, columns=columns)
        assert data.corpus.texts() == ["a", "b"]
    assert data.split("train").weights is not None
    assert data.split("train").weights.tolist() == [3.0, 1.5]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"^pairs: is missing; give pairs, or queries and documents as two lists of texts, row by row$"),
        ({"queries": QUERIES, "documents": DOCUMENTS}, r"there are 2 queries and 3 documents; give pairs$"),
        (
            {"queries": pd.DataFrame({"id": [1], "text": ["a"]}), "documents": pd.DataFrame(TABLE)},
            r"^queries: without pairs, must be a list of texts, got 'DataFrame'$",  # a list of it holds its columns
        ),
        (
            {"queries": ["a", None], "documents": QUERIES},
            r"^queries\[1\]: must be a text, got None$",
        ),
        ({"queries": ["a", "\ud800"], "documents": QUERIES}, r"^queries: holds half a character"),
        ({"documents": {"1": None}, "pairs": [("a", 1)]}, r"^documents\[0\]: must be a text, got None$"),
        ({"documents": {1.5: "a"}, "pairs": [("a", 1)]}, r"^documents: ids must be texts or whole numbers, got 1\.5$"),
        (
            {"documents": pd.Series(["a", "b"], index=[4, 4]), "pairs": [("a", 4)]},
            r"^documents\[1\]: duplicate id '4', first seen at documents\[0\]",
        ),
        ({"pairs": pd.Series(["a"])}, r"^pairs: must be a table .*, got 'Series'$"),
        ({"queries": set(QUERIES), "documents": ["a", "b"]}, r"^queries: is a set, which has no order; pass a list$"),
        ({"queries": QUERIES, "documents": frozenset("ab")}, r"^documents: is a set, which has no order; pass a list$"),
        (
            {"pairs": {"query": set(QUERIES), "document": ["a", "b"]}},
            r"^pairs\['query'\]: is a set, which has no order",
        ),
        (
            {"pairs": datasets.DatasetDict(train=TEXTS)},
            r"^pairs: is a DatasetDict \(train\); pass one split, or save_to",
        ),
        (
            {"documents": datasets.DatasetDict(a=TEXTS), "pairs": [("a", 1)]},
            r"^documents: is a DatasetDict \(a\); pass",
        ),
        (
            {"pairs": TEXTS.with_transform(lambda batch: batch)},
            r"^pairs: has a transform, which .* for good with map\(\)",
        ),
        ({"pairs": TEXTS.to_iterable_dataset().map(dict)}, r"^pairs: is a stream whose columns are not known; read it"),
        (
            {"pairs": pd.DataFrame([["a", "b"]], columns=["query"] * 2)},
            r"^pairs: two columns are called 'query'; rename one$",
        ),
        ({"pairs": {1: ["a"], "1": ["b"]}}, r"^pairs: two columns are called '1'; rename one$"),
        ({"pairs": [{1: "a", "1": "b"}]}, r"^pairs: two columns are called '1'; rename one$"),
        (
            {"queries": QUERIES, "documents": DOCUMENTS, "pairs": np.array([[0, 2**24 + 1]], dtype=np.float32)},
            r"^pairs\[0\]: column 'document' must be .*; float keeps whole numbers apart below 16,777,216 only",
        ),
        ({"pairs": 3}, r"^pairs: must be a table \(pandas, .*\), columns by name or a list, got 'int'$"),
        ({"pairs": []}, r"^pairs: must not be empty$"),
        ({"pairs": [("a",)]}, r"^pairs\[0\]: must be a tuple \(query, document, grade\), got \('a',\)$"),
        ({"pairs": [("a", "b"), ("c",)]}, r"^pairs\[1\]: must be a tuple of 2 values, as the first is, got \('c',\)$"),
        ({"pairs": [("a", "b"), ("c", " ")]}, r"^pairs\[1\]: column 'document' must not be empty"),
        ({"queries": QUERIES, "documents": DOCUMENTS, "pairs": [(0, 3)]}, r"^pairs\[0\]: document '3' is no id in"),
        (
            {"pairs": pd.DataFrame({"query": [True, "x"], "document": ["a", "b"]})},
            r"^pairs\[0\]: column 'query' must be a text or a number, got True$",
        ),
        ({"pairs": pa.table({"query": ["a"], "x": ["b"]})}, r"^pairs: no column has a name known for the document"),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        RetrievalData.from_pairs(**arguments)


@pytest.mark.parametrize("columns", [{"query": 1}, {1: "query"}, 7, [7]])
def test_columns_that_are_none(columns: Any) -> None:
    with pytest.raises(SettingError, match=r"columns: must "):
        RetrievalData.from_pairs(pairs=[("a", "b")], columns=columns)


@pytest.mark.parametrize("kind", ["itertuples", "to_records"])
def test_names_of_values_go_before_their_places(kind: str) -> None:
    frame = pd.DataFrame({"answer": ["a", "b"], "question": QUERIES})
    pairs = list(frame.itertuples(index=False)) if kind == "itertuples" else frame.to_records(index=False)
    data = RetrievalData.from_pairs(pairs=pairs)
    assert (data.queries.texts(), data.corpus.texts()) == (QUERIES, ["a", "b"])


def test_an_unknown_role() -> None:
    with pytest.raises(SettingError, match=r"^--columns: unknown role 'qeury'; did you mean 'query'\? \(known: query,"):
        RetrievalData.from_pairs(pairs=[("a", "b")], columns={"qeury": "query"})


def test_data_of_a_program_are_found_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = RetrievalData.from_pairs(["a question"] * 1, ["an answer"])
    (tmp_path / data.name).mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"in a program.s memory"):
        load_data(data.source)


def test_the_columns_of_a_format_are_those_that_are_read() -> None:
    table = datasets.Dataset.from_dict({"query": QUERIES, "document": ["a", "b"], "label": [0, 1]})
    data = RetrievalData.from_pairs(pairs=table.with_format("numpy", columns=["query", "document"]))
    assert data.split("train").grades.tolist() == [1, 1]
    assert RetrievalData.from_pairs(pairs=table).split("train").grades.tolist() == [0, 1]
    assert RetrievalData.from_pairs(pairs=table.to_iterable_dataset()).fingerprint != data.fingerprint


def test_aligned_series() -> None:
    queries = pd.Series(QUERIES, index=[5, 6])
    assert RetrievalData.from_pairs(queries, pd.Series(["a", "b"])).corpus.texts() == ["a", "b"]
    with pytest.raises(DataError, match=r"^queries and documents: have the same index in different orders, and row i"):
        RetrievalData.from_pairs(queries, pd.Series(["b", "a"], index=[6, 5]))
