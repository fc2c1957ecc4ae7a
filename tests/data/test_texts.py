"""Tables of texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from opera.data import TextTable, load_data
from text_files import edit_line

MakeBeir = Callable[..., Path]


def test_rows_are_found_across_chunks(monkeypatch: pytest.MonkeyPatch, make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "corpus.jsonl", 1, '{"_id": "d0", "title": "a \\"quoted\\" id", "text": "x"}')
    monkeypatch.setattr("opera.data.relation.WRITTEN_ROWS", 7)
    data = load_data(folder)
    assert data.corpus.table["text"].num_chunks > 10
    texts = data.corpus.texts()
    rows = np.random.default_rng(0).integers(len(texts), size=200)
    assert data.corpus.texts(rows) == [texts[row] for row in rows]
    assert data.corpus.ids(rows) == [f"d{row}" for row in rows]
    assert data.corpus.texts(slice(5, 30)) == texts[5:30]
    assert data.corpus.texts(np.array([], dtype=int)) == []


def test_a_batch_of_long_texts_ends_early(monkeypatch: pytest.MonkeyPatch, make_beir: MakeBeir) -> None:
    """An Arrow array holds at most 2 GiB of text, whatever the number of rows."""
    monkeypatch.setattr("opera.data.texts.BATCH_CHARACTERS", 1000)
    monkeypatch.setattr("opera.data.relation.ARROW_BYTES", 3000)
    texts = {f"d{row}": f"{row} " + "a" * (row % 7 * 100) for row in range(50)}
    table = TextTable.from_texts(texts)
    folder = make_beir()
    lines = (json.dumps({"_id": name, "text": text}) for name, text in texts.items())
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    for path in (folder / "qrels").iterdir():
        path.write_text("query-id\tcorpus-id\tscore\ntrain0\td7\t1\n")
    read = load_data(folder).corpus
    for found in (table, read):
        assert found.table["text"].num_chunks > 10
        assert max(pc.sum(pc.utf8_length(chunk)).as_py() for chunk in found.table["text"].chunks) < 2000
        assert (found.ids(), found.texts()) == (list(texts), list(texts.values()))
        assert found.texts(np.array([49, 0, 13])) == [texts[f"d{row}"] for row in (49, 0, 13)]


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_rows_are_selected_in_any_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("opera.data.relation.WRITTEN_ROWS", 7)
    table = TextTable.from_texts({f"d{row}": f"text {row}" for row in range(60)})
    rows = np.random.default_rng(1).integers(60, size=count)
    found = table.select(rows)
    assert found.table.schema == table.table.schema
    assert (found.ids(), found.texts()) == ([f"d{row}" for row in rows], [f"text {row}" for row in rows])


def test_rows_are_found_by_id() -> None:
    table = TextTable.from_texts({"b": "x", "a": "y", "c": "z"})
    assert table.find_rows(["c", "nobody", "b"]).tolist() == [2, -1, 0]
    assert table.id_rank.tolist() == [1, 0, 2]


def test_a_title_is_joined_unless_only_the_text_is_wanted(make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "corpus.jsonl", 2, '{"_id": "d1", "title": "alone", "text": ""}')
    corpus = load_data(folder).corpus
    assert corpus.texts(slice(1, 2)) == ["alone"]
    assert corpus.texts(slice(1, 2), "text") == [""]
