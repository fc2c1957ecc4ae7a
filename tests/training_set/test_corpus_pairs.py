"""``opera.pairs``: a table of weak pairs that ``opera train`` reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opera
from opera.core.errors import DataError, SettingError

LONG = "The text below is long enough to be a chunk of its own, about {}."
DOCUMENTS = [
    {"id": "007", "title": "How do I reset it?", "text": "How do I reset it? " + LONG.format("resets")},
    {"id": "8", "title": "The price of delivery", "text": 'quotes "here",\nand lines'},
    {"id": "9", "title": "Imprint", "text": LONG.format("words")},
    {"id": "10", "title": "Nothing but a title", "text": " "},
    {"id": "11", "title": "Twice the same title", "text": LONG.format("one")},
    {"id": "12", "title": "twice the  same title", "text": LONG.format("two")},
    {"id": "13", "title": "", "text": LONG.format("none")},
]


def write_documents(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(DOCUMENTS), path)
    elif name.endswith(".jsonl"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "title", "text"])
            writer.writeheader()
            writer.writerows(DOCUMENTS)
    return path


@pytest.mark.parametrize("name", ["docs.csv", "docs.parquet", "beir/corpus.jsonl"])
@pytest.mark.parametrize("out", ["weak.csv", "weak.parquet", "weak.jsonl"])
def test_titles_and_bodies_train_by_texts_and_by_ids(
    name: str, out: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, weak = write_documents(tmp_path, name), tmp_path / out
    (corpus.parent / "README.md").write_text(f"# The data of this folder\n\n{LONG}\n")
    with caplog.at_level("INFO", logger="opera"):
        table = opera.pairs(corpus.parent if corpus.suffix == ".jsonl" else corpus, out=weak)
    assert table.to_pylist() == [
        {"query": "How do I reset it?", "document_id": "007", "document": LONG.format("resets"), "origin": "question"},
        {"query": "The price of delivery", "document_id": "8", "document": 'quotes "here",\nand lines',
         "origin": "title"},
    ]  # fmt: skip
    left_out = "titles left out: 1 of fewer than 3 words, 1 without a text, 2 of several texts"
    assert left_out in caplog.text
    assert "left out 1 of 7 texts without a title; the first is 13" in caplog.text
    alone, beside = opera.load_data(weak), opera.load_data(pairs=weak, documents=corpus)
    for data, documents in ((alone, 2), (beside, 7)):
        assert data.counts() == {"documents": documents, "train_queries": 2, "train_pairs": 2}
        relevant = data.training_split()
        assert data.corpus.ids(relevant.doc_rows) == ["007", "8"]
        assert data.queries.texts(relevant.query_rows) == ["How do I reset it?", "The price of delivery"]


def test_a_folder_of_texts(tmp_path: Path) -> None:
    home = tmp_path / "docs"
    (home / "deep").mkdir(parents=True)
    (home / ".hidden").mkdir()
    (home / "a.md").write_text(f"# Reset of the box\n\n{LONG.format('a')}\n\n{LONG.format('b') * 9}\n")
    (home / "deep" / "b.txt").write_text(f"What does it cost?\n{LONG.format('money')}\n")
    (home / ".hidden" / "c.md").write_text(f"# Never to be read\n\n{LONG.format('c')}\n")
    table = opera.pairs(home, out=tmp_path / "weak.csv")
    assert table.column_names == ["query", "document", "origin"]
    found = [(row["query"], row["origin"]) for row in table.to_pylist()]
    assert found == [("Reset of the box", "title")] * 2 + [("What does it cost?", "question")]
    assert opera.load_data(tmp_path / "weak.csv").counts()["train_pairs"] == 3


def test_bad_rows_and_texts_without_a_title_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, body = tmp_path / "docs.csv", LONG.replace(",", "")
    path.write_text(f"nr,title,text\n1,How does it go,{body}\n2,too many,{body},x\n,Without an id,{body}\n")
    how = {"columns": {"id": "nr"}}
    with pytest.raises(DataError, match=r"docs\.csv:3: must have 3 columns") as caught:
        opera.pairs(path, **how)
    assert str(caught.value).endswith("--skip-bad-rows leaves out these 2 of 3 rows")
    with caplog.at_level("INFO", logger="opera"):
        assert opera.pairs(path, skip_bad_rows=True, **how)["document_id"].to_pylist() == ["1"]
        assert "left out 2 of 3 rows: must have 3 columns ('nr', 'title', 'text') (1, the first is" in caplog.text
        path.rename(tmp_path / "docs.txt").write_text(f"Nothing asks.\n{LONG}\n")
        (tmp_path / "more.md").write_text(f"# Reset of the box\n\n{LONG}\n")
        assert opera.pairs(tmp_path).num_rows == 1
    first = tmp_path / "docs.txt"
    assert f"left out 1 of 2 texts without a title, heading or question; the first is {first}" in caplog.text
    with pytest.raises(SettingError, match=f"^--skip-bad-rows: applies only to tables, not to {tmp_path}"):
        opera.pairs(tmp_path, skip_bad_rows=True)


def test_headings_where_documents_have_no_titles(tmp_path: Path) -> None:
    rows = [{"id": str(n), "body": f"# Number {n} of the texts\n\n{LONG.format(n)}"} for n in range(3)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = opera.pairs(tmp_path / "docs.jsonl").to_pylist()
    assert found[2] == {"query": "Number 2 of the texts", "document": LONG.format(2), "origin": "title"}


def test_documented_code() -> None:
    assert set(opera.pairs("python:json")["origin"].to_pylist()) == {"docstring"}


def test_weak_pairs_train(tmp_path: Path, beir: Path, static_model: Path) -> None:
    rows = [{"title": f"t{n % 4}w{n} common{n} t1w{n}", "text": f"t{n % 4}w{n} w{n}"} for n in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "docs.parquet")
    opera.pairs(tmp_path / "docs.parquet", out=tmp_path / "weak.jsonl")
    run = opera.adapt(tmp_path / "weak.jsonl", model=static_model, out=tmp_path / "run", max_steps=2)
    assert run.record.data.counts["test_queries"] == 4
