"""FlagEmbedding files: what is read, and how errors are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opera.core.errors import DataError
from opera.data import load_data


def write(folder: Path, *records: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n")
    return path


def test_reads_pairs_and_negatives(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"query": "q one", "pos": ["a", "b"], "neg": ["c", "a"]},
        {"query": "q two", "pos": ["c"], "pos_scores": [1]},
        {"query": "q one", "pos": ["d"], "neg": ["e"]},
    )
    data = load_data(path)
    assert data.corpus.texts() == ["a", "b", "c", "d", "e"]
    train = data.split("train")
    assert train.doc_rows.tolist() == [0, 1, 3, 2]
    assert data.given_negatives is not None
    assert data.given_negatives.doc_rows.tolist() == [2, 4]
    assert data.given_negatives.offsets.tolist() == [0, 2, 2]
    assert len(data.notes) == 3


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "train.jsonl:2: not JSON"),
        ({"query": "x"}, "train.jsonl:2: column 'pos' is missing"),
        ({"query": "x", "pos": []}, "train.jsonl:2: column 'pos' must hold at least one text"),
        ({"query": "x", "pos": "a"}, "train.jsonl:2: column 'pos' must be a list of strings"),
        ({"query": " ", "pos": ["a"]}, "train.jsonl:2: column 'query' must not be empty"),
        ({"query": "x", "pos": [""]}, "train.jsonl:2: column 'pos' holds an empty text"),
        *[
            ({"query": "x", "pos": ["a"], "neg": wrong}, "train.jsonl:2: column 'neg' must be a list of strings, got")
            for wrong in (0, "", False, {}, [None])
        ],
        ({"query": "x", "pos": ["a"], "pos_scores": [1, 2]}, "column 'pos_scores' has 2 numbers for the 1 texts of"),
        (
            {"query": "x", "pos": ["a"], "neg_scores": [True]},
            "column 'neg_scores' must be a list of numbers, got [True",
        ),
        ('{"query": "x", "pos": ["a"], "pos": ["b"]}', "train.jsonl:2: the key 'pos' occurs twice: '{"),
        ('{"query": "x", "pos": ["a"], "pos_scores": [NaN]}', "train.jsonl:2: holds NaN, which is no number of JSON"),
        ({"query": "x", "pos": ["a"], "negs": []}, "unknown column 'negs'; did you mean 'neg'?"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, record: object, message: str) -> None:
    path = write(tmp_path, {"query": "q", "pos": ["a"]}, record)
    with pytest.raises(DataError) as caught:
        load_data(path)
    assert message in str(caught.value)


def test_a_column_may_be_null(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeff{"query": "q", "pos": ["a"], "neg": null, "pos_scores": null, "neg_scores": []}')
    data = load_data(path)
    assert (data.corpus.texts(), data.given_negatives) == (["a"], None)
