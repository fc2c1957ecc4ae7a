"""Tables of texts."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data import TextTable


@pytest.mark.parametrize("count", [0, 1, 2500])
def test_rows_are_selected_in_any_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("opera.data.relation.WRITTEN_ROWS", 7)
    table = TextTable.from_texts({f"d{row}": f"text {row}" for row in range(60)})
    rows = np.random.default_rng(1).integers(60, size=count)
    expected = [f"d{row}" for row in rows], [f"text {row}" for row in rows]
    selected = table.select(rows)
    assert selected.table.schema == table.table.schema
    assert (selected.ids(), selected.texts()) == expected == (table.ids(rows), table.texts(rows))


def test_rows_are_found_by_id() -> None:
    table = TextTable.from_texts({"b": "x", "a": "y", "c": "z"})
    assert table.find_rows(["c", "nobody", "b"]).tolist() == [2, -1, 0]
    assert table.id_rank.tolist() == [1, 0, 2]
