"""The cache of parsed data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opera.core.errors import DataError
from opera.data import cache_folder, load_data, store
from text_files import edit_line

MakeBeir = Callable[..., Path]


def test_second_load_comes_from_the_cache_and_is_the_same(make_beir: MakeBeir) -> None:
    folder = make_beir()
    first, second = load_data(folder), load_data(folder)
    assert first.fingerprint == second.fingerprint
    assert (cache_folder() / "data" / first.fingerprint[:32] / "corpus.arrow").is_file()
    assert first.corpus.texts() == second.corpus.texts()
    edit_line(folder / "queries.jsonl", 1, '{"_id": "train0", "text": "something else"}')
    assert load_data(folder).fingerprint != first.fingerprint


def test_a_failed_read_leaves_nothing_in_the_cache(make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "qrels" / "train.tsv", 2, "nobody\td0\t1")
    before = set((cache_folder() / "data").iterdir())
    with pytest.raises(DataError):
        load_data(folder)
    assert set((cache_folder() / "data").iterdir()) == before


def test_data_that_change_while_they_are_read_are_not_cached(
    make_beir: MakeBeir, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = make_beir(), store._write_arrays
    original = (folder / "queries.jsonl").read_text()
    edit_line(folder / "queries.jsonl", 1, '{"_id": "train0", "text": "as it was at first"}')
    first = (folder / "queries.jsonl").read_text()

    def edit(builder: store.DataBuilder) -> None:
        write(builder)
        (folder / "queries.jsonl").write_text(original)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_arrays", edit)
        with pytest.raises(DataError, match="changed while it was read; run the command again"):
            load_data(folder)
    (folder / "queries.jsonl").write_text(first)
    assert "as it was at first" in load_data(folder).queries.texts()
