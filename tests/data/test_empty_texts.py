"""Documents and queries without a text: kept and counted, and an error only where a relevant pair names one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
            "2 documents without title and text, such as 'd5': ranked, but not used as negatives",
            "1 query without a text, such as 'train39': not used",
        )
    assert data.training_split().n_queries == 2
    data.write_beir(tmp_path / "copy")
    assert load_data(tmp_path / "copy").corpus.empty_rows().tolist() == [5, 8]


def test_dictionaries_may_hold_them_too() -> None:
    texts = {"corpus": {"a": "x", "b": " "}, "queries": {"q": "y"}}
    data = RetrievalData.from_dicts("mine", **texts, qrels={"train": {"q": {"a": 1, "b": 0}}})
    assert data.corpus.empty_rows().tolist() == [1]
    assert len(data.notes) == 1
    data.training_split()
    with pytest.raises(DataError, match=r"^mine: split 'train': a relevant pair \(query 'q', document 'b'\)"):
        RetrievalData.from_dicts("mine", **texts, qrels={"train": {"q": {"b": 1}}})


def test_titles_count_unless_only_texts_are_encoded(make_beir: MakeBeir) -> None:
    folder = unjudged(make_beir())
    edit_line(folder / "corpus.jsonl", 6, EMPTY.format("d5"))
    edit_line(folder / "corpus.jsonl", 8, '{"_id": "d7", "title": "a title", "text": " "}')
    corpus = load_data(folder).corpus
    assert corpus.empty_rows("title_text").tolist() == [5]
    assert corpus.empty_rows("text").tolist() == [5, 7]
