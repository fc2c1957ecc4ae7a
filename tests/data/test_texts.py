"""Tables of texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import TextTable, load_data
from text_files import edit_line

MakeBeir = Callable[..., Path]


def test_rows_are_found_across_chunks(monkeypatch: pytest.MonkeyPatch, make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "corpus.jsonl", 1, '{"_id": "d0", "title": "a \\"quoted\\" id", "text": "x"}')
    monkeypatch.setattr("opera.data.store.BATCH_ROWS", 7)
    data = load_data(folder)
    assert data.corpus.table["text"].num_chunks > 10
    texts = data.corpus.texts()
    rows = np.random.default_rng(0).integers(len(texts), size=200)
    assert data.corpus.texts(rows) == [texts[row] for row in rows]
    assert data.corpus.ids(rows) == [f"d{row}" for row in rows]
    assert data.corpus.texts(slice(5, 30)) == texts[5:30]
    assert data.corpus.texts(np.array([], dtype=int)) == []


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
    corpus.check_not_empty("title_text", "document")
    with pytest.raises(DataError, match="corpus_text=text: document 'd1' has a title but no text"):
        corpus.check_not_empty("text", "document")
