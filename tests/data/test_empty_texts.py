"""Documents and queries without a text: kept and counted, and an error only where a relevant pair names one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData, load_data
from text_files import edit_line

MakeBeir = Callable[..., Path]

EMPTY = '{{"_id": "{}", "title": " ", "text": "\\u2003\\n"}}'


def unjudged(folder: Path) -> Path:
    """Leave three judgements: of train0, train1 and test0."""
    for split, lines in {"train": ["train0\td0\t2", "train1\td1\t1"], "test": ["test0\td2\t1"]}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def test_empty_documents_are_kept_counted_and_told_once(make_beir: MakeBeir, tmp_path: Path) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "corpus.jsonl", 6, EMPTY.format("d5"))
    edit_line(folder / "corpus.jsonl", 9, '{"_id": "d8", "text": null}')
    edit_line(folder / "queries.jsonl", 40, '{"_id": "train39", "text": ""}')
    for _ in range(2):  # parsed, then from the cache
        data = load_data(folder)
        assert len(data.corpus) == 120
        assert data.corpus.empty_rows().tolist() == [5, 8]
        assert data.notes == (
            "2 documents without title and text, such as 'd5': they are kept and ranked, and are no negatives",
            "1 queries without a text, such as 'train39': they are kept, and not used",
        )
    assert data.training_split().n_queries == 2
    data.write_beir(tmp_path / "copy")
    assert load_data(tmp_path / "copy").corpus.empty_rows().tolist() == [5, 8]


def test_only_a_relevant_pair_makes_one_an_error(make_beir: MakeBeir) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "corpus.jsonl", 2, EMPTY.format("d1"))
    data = load_data(folder)
    with pytest.raises(DataError) as caught:
        data.training_split()
    assert str(caught.value) == (
        f"{folder}/qrels/train.tsv:3: a relevant pair (query 'train1', document 'd1'), but the document's title and "
        "text are empty; give it a text or remove the pair"
    )
    assert data.with_relevant_grade(2).training_split().n_queries == 1
    assert data.judged_qrels("test").n_queries == 1  # nothing of train is asked for


def test_the_line_is_of_the_folder_that_is_read_not_of_its_copy(make_beir: MakeBeir) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "corpus.jsonl", 3, EMPTY.format("d2"))
    load_data(folder)
    other = folder.rename(folder.with_name("other"))
    with pytest.raises(DataError, match=rf"^{other}/qrels/test\.tsv:2: a relevant pair"):
        load_data(other).judged_qrels("test")


def test_a_relevant_query_without_a_text_is_an_error(make_beir: MakeBeir) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "queries.jsonl", 1, '{"_id": "train0", "text": " "}')
    with pytest.raises(DataError, match=r"train\.tsv:2: a relevant pair .*'train0'.*, but the query's text is empty"):
        load_data(folder).training_split()


def test_dictionaries_may_hold_them_too() -> None:
    texts = {"corpus": {"a": "x", "b": " "}, "queries": {"q": "y"}}
    data = RetrievalData.from_dicts("mine", **texts, qrels={"train": {"q": {"a": 1, "b": 0}}})
    assert data.corpus.empty_rows().tolist() == [1]
    assert len(data.notes) == 1
    data.training_split()
    data = RetrievalData.from_dicts("mine", **texts, qrels={"train": {"q": {"b": 1}}})
    with pytest.raises(DataError, match=r"^mine: split 'train': a relevant pair \(query 'q', document 'b'\)"):
        data.training_split()


def test_titles_count_unless_only_texts_are_encoded(make_beir: MakeBeir) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "corpus.jsonl", 6, EMPTY.format("d5"))
    edit_line(folder / "corpus.jsonl", 8, '{"_id": "d7", "title": "a title", "text": " "}')
    corpus = load_data(folder).corpus
    assert corpus.empty_rows("title_text").tolist() == [5]
    assert corpus.empty_rows("text").tolist() == [5, 7]


ROWS = [["a", "p", "x", ""], ["b", "q", " ", "y"]]
FRAME = pd.DataFrame(ROWS, columns=["query", "positive", "negative", "negative_2"])
LISTS = pd.DataFrame({"query": ["a", "b"], "positive": ["p", "q"], "negative": [["x", np.nan], [None, "y", ""]]})


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "query,positive,negative,negative_2\na,p,x,\nb,q,  ,y\n"),
        ("p.tsv", "query\tpositive\tnegative\tnegative_2\na\tp\tx\t\nb\tq\t\ty\n"),
        ("p.jsonl", lines(*FRAME.to_dict("records"))),
        ("p.jsonl", lines(*({"query": q, "positive": p, "negatives": [x, y, None]} for q, p, x, y in ROWS))),
        ("p.jsonl", lines(*({"query": q, "pos": [p], "neg": [x, None, y]} for q, p, x, y in ROWS))),
    ],
)
def test_an_empty_negative_is_missing_in_every_format(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert_two_negatives(load_data(tmp_path / name))


@pytest.mark.parametrize("frame", [FRAME, FRAME.replace("", None), FRAME.replace("", np.nan), LISTS])
def test_an_empty_negative_is_missing_in_every_frame(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert_two_negatives(RetrievalData.from_pairs(pairs=frame))
    pa.parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "p.parquet")
    assert_two_negatives(load_data(tmp_path / "p.parquet"))


def assert_two_negatives(data: RetrievalData) -> None:
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 1, 2]
    assert data.corpus.texts(data.given_negatives.doc_rows) == ["x", "y"]
    assert sorted(data.corpus.texts()) == ["p", "q", "x", "y"]


def test_an_empty_negative_takes_its_score_along(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(lines({"query": "a", "pos": ["p"], "neg": ["", "x"], "neg_scores": [3, 1]}))
    data = load_data(path)
    assert data.teacher is not None
    assert data.teacher.lookup(np.array([0]), data.corpus.find_rows(["d1"])).tolist() == [1]


def test_a_column_of_negatives_may_be_empty() -> None:
    frame = pd.DataFrame({"query": ["a"], "positive": ["p"], "negative": [np.nan]})
    for pairs in (frame, pa.table({name: pa.array(frame[name]) for name in frame}), frame.to_dict("records")):
        data = RetrievalData.from_pairs(pairs=pairs)
        assert (data.corpus.texts(), data.given_negatives) == (["p"], None)
