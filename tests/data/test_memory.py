"""Data in memory: lists, dictionaries, DataFrames, ``datasets`` and pyarrow."""

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from opera import DataError, SettingError, load_data

QUERIES, DOCUMENTS = ["one", "two"], ["a", "b", "c"]
TEXTS = datasets.Dataset.from_dict({"query": ["a"], "document": ["b"]})
TABLE = {"id": [0, 1, 2], "text": DOCUMENTS}


PAIRS = [(0, 1, 2), ("1", 0, "1")]


@pytest.mark.parametrize(
    ("documents", "pairs"),
    [
        (DOCUMENTS, PAIRS),
        ({"0": "a", 1: "b", "2": "c"}, PAIRS),
        (pa.table(TABLE), PAIRS),
        (pd.Series(DOCUMENTS), PAIRS),
        (np.array(DOCUMENTS), np.array([[0, 1, 2], [1, 0, 1]])),
        (pd.DataFrame(TABLE), pd.DataFrame({"query_id": [0, 1], "doc_id": [1, "0"], "grade": [2.0, 1.0]})),
        (
            datasets.Dataset.from_dict(TABLE),
            datasets.Dataset.from_dict({"query": ["0", "1"], "document": ["1", "0"], "score": [2, 1]}),
        ),
        (
            [{"id": row, "text": text} for row, text in enumerate(DOCUMENTS)],
            [{"query": 0, "document": 1, "grade": 2}, {"grade": 1, "document": 0, "query": np.int64(1)}],
        ),
        (TABLE, {"query": [0, "1"], "document": [1, 0.0], "grade": [2, 1]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_table_gives_the_same_data(documents, pairs):
    data = load_data(queries=QUERIES, documents=documents, pairs=pairs, name="mine")
    train = data.split("train")
    assert (train.query_rows.tolist(), train.doc_rows.tolist(), train.grades.tolist()) == ([0, 1], [1, 0], [2, 1])
    assert data.corpus.ids() == ["0", "1", "2"]
    assert (data.name, data.source) == ("mine", "memory:mine")


def test_texts_and_lists_in_one_column_are_lists():
    frame = pd.DataFrame({"query": ["a", "b"], "document": ["c", 7], "negative": [["x", None, np.nan, pd.NA, ""], "y"]})
    data = load_data(frame)
    assert data.corpus.texts() == ["c", "7", "x", "y"]
    assert data.given_negatives.doc_rows.tolist() == [2, 3]
    alone = load_data(pd.DataFrame({"query": ["a"], "positive": ["p"], "negative": [np.nan]}))
    assert (alone.corpus.texts(), alone.given_negatives) == (["p"], None)


def test_columns_may_be_given_in_four_forms():
    frame = pd.DataFrame({"question": QUERIES, "said": ["a", "b"], "clicks": [3, 1.5]})
    for columns in ({"document": "said"}, {"document": ["said"]}, "document=said", ["document=said"]):
        data = load_data(pairs=frame, columns=columns)
        assert data.corpus.texts() == ["a", "b"]
        assert data.split("train").weights_or_ones().tolist() == [3.0, 1.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": QUERIES}, r"^pairs: is missing; pass pairs, or queries and documents as two lists of texts"),
        ({"queries": QUERIES, "documents": DOCUMENTS}, r"there are 2 queries and 3 documents; pass pairs$"),
        ({"queries": ["a", None], "documents": QUERIES}, r"^pairs\[1\]: column 'query' must not be empty"),
        ({"documents": ["a", None], "pairs": [("q", "0")]}, r"^documents\[1\]: must be a text, got None$"),
        ({"documents": pd.Series(["a", "b"], index=[4, 4]), "pairs": [("a", 4)]}, r"^documents\[1\]: duplicate id '4'"),
        ({"queries": set(QUERIES), "documents": ["a", "b"]}, r"^queries: without pairs, must be a list of texts"),
        ({"pairs": datasets.DatasetDict(train=TEXTS)}, r"^pairs: is a DatasetDict \(train\); pass one split, or"),
        ({"pairs": TEXTS.with_transform(lambda batch: batch)}, r"^pairs: has a transform, .* first with map\(\)"),
        ({"pairs": TEXTS.to_iterable_dataset().map(dict)}, r"^pairs: is a stream with unknown columns; convert it"),
        ({"pairs": 3}, r"^pairs: must be a table \(pandas, .*\), columns by name or a list, got 'int'$"),
        ({"pairs": [("a", "b"), ("c",)]}, r"^pairs\[1\]: must be a tuple \(query, document, grade\), as all rows, got"),
    ],
)  # fmt: skip
def test_errors_name_the_argument_the_row_and_the_rule(arguments, message):
    with pytest.raises(DataError, match=message):
        load_data(**arguments)


@pytest.mark.parametrize("columns", [{"query": 1}, 7, {"qeury": "query"}])
def test_columns_without_a_role_or_a_name_are_refused(columns):
    with pytest.raises(SettingError):
        load_data([("a", "b")], columns=columns)


def test_named_values_are_read_by_name_and_not_by_position():
    frame = pd.DataFrame({"answer": ["a", "b"], "question": QUERIES})
    for pairs in (list(frame.itertuples(index=False)), frame.to_records(index=False)):
        data = load_data(pairs=pairs)
        assert (data.queries.texts(), data.corpus.texts()) == (QUERIES, ["a", "b"])


def test_only_the_columns_of_a_format_are_read():
    table = datasets.Dataset.from_dict({"query": QUERIES, "document": ["a", "b"], "label": [0, 1]})
    data = load_data(table.with_format("numpy", columns=["query", "document"]))
    assert data.split("train").grades.tolist() == [1, 1]
    assert load_data(table).split("train").grades.tolist() == [0, 1]
    assert load_data(table.to_iterable_dataset()).fingerprint != data.fingerprint


def test_series_pair_by_position_unless_their_indexes_disagree():
    queries = pd.Series(QUERIES, index=[5, 6])
    assert load_data(queries=queries, documents=pd.Series(["a", "b"])).corpus.texts() == ["a", "b"]
    with pytest.raises(DataError, match=r"^queries and documents: have the same index in different orders"):
        load_data(queries=queries, documents=pd.Series(["b", "a"], index=[6, 5]))


def test_a_row_may_have_hundreds_of_negatives():
    negatives = {f"negative_{number}": [f"n{number}"] for number in range(1, 301)}
    data = load_data(pd.DataFrame({"query": ["a"], "positive": ["p"], **negatives}))
    assert data.corpus.texts() == ["p", *(text for (text,) in negatives.values())]


def test_rows_that_are_not_relevant_add_no_weight_and_no_grade_to_a_repeated_pair():
    rows = {"grade": [0, 1, 2, 3, 0], "weight": [7, 2, 4, 0, 5], "document": ["a", "a", "a", "a", "b"]}
    train = load_data(pairs=pd.DataFrame({"query": "one", **rows})).split("train")
    assert train.grades.tolist() == [2, 0]
    assert train.relevant().weights_or_ones().tolist() == [6]  # a weight of 0 is not relevant either
