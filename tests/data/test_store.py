"""The cache of parsed data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opera.core.errors import DataError
from opera.data import cache_folder, load_data
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
