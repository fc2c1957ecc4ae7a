"""Tables of texts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.data import TextTable, load_data, texts
from opera.data.texts import without_extra_space


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_rows_are_selected_in_any_order(monkeypatch, count):
    monkeypatch.setattr("opera.data.relation.WRITTEN_ROWS", 7)
    table = TextTable.from_texts({f"d{row}": f"text {row}" for row in range(60)})
    rows = np.random.default_rng(1).integers(60, size=count)
    expected = [f"d{row}" for row in rows], [f"text {row}" for row in rows]
    selected = table.select(rows)
    assert selected.table.schema == table.table.schema
    assert (selected.ids(), selected.texts()) == expected == (table.ids(rows), table.texts(rows))
    assert table.ids(slice(0, 10, 3)) == ["d0", "d3", "d6", "d9"]


@given(st.text(alphabet=["a", "é", " ", *map(chr, range(9, 14)), "\x1c", "\x85", "\xa0", "\u2003", "\u3000"]))
def test_equal_words_give_equal_texts(text):
    assert without_extra_space(text) == " ".join(text.split())


def test_hashes_are_computed_once_per_data_set(make_beir, monkeypatch):
    folder = make_beir()

    def hashes() -> list[list[int]]:
        data = load_data(folder)
        return [column.tolist() for column in (data.corpus.digests, data.corpus.text_digests, data.queries.digests)]

    computed = hashes()
    monkeypatch.setattr(texts, "digests_of", None)  # a second hash would fail
    assert hashes() == computed
    corpus = load_data(folder).corpus
    assert TextTable(corpus.table, parts=(corpus, corpus)).digests.tolist() == computed[0] * 2


def test_rows_are_found_by_id():
    table = TextTable.from_texts({"b": "x", "a": "y", "c": "z"})
    assert table.find_rows(["c", "nobody", "b"]).tolist() == [2, -1, 0]
    assert table.id_rank.tolist() == [1, 0, 2]


def test_processes_that_hash_at_once_do_not_disturb_each_other(make_beir: Callable[..., Path]) -> None:
    corpus = load_data(make_beir()).corpus
    assert corpus.file is not None
    with ThreadPoolExecutor() as pool:
        tables = [TextTable.open(corpus.file) for _ in range(8)]
        hashes = list(pool.map(lambda table: table.digests.tolist(), tables))
    assert hashes == [corpus.digests.tolist()] * 8
