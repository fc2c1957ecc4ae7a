"""Excel files: the only sheet is read; a missing package and several sheets are errors with advice."""

import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import opera

openpyxl = pytest.importorskip("openpyxl")


def write(path: Path, *sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"Sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_the_first_row_names_the_columns_and_values_become_texts(tmp_path):
    rows = [["question", "answer", "clicks", None], ["reset", "press 5", 3], [12, date(2026, 1, 2), 1.0], [None], []]
    rows[3:3] = [["last", "row", 2, "note"]]
    data = opera.load_data(write(tmp_path / "tickets.xlsx", rows))
    assert data.queries.texts() == ["reset", "12", "last"]
    assert data.corpus.texts() == ["press 5", "2026-01-02T00:00:00", "row"]
    assert data.split("train").weights.tolist() == [3, 1, 2]


def test_a_bad_row_has_its_number_in_the_sheet(tmp_path):
    path = write(tmp_path / "t.xlsx", [["question", "answer"], ["a", "b"], ["c", None]])
    with pytest.raises(opera.DataError, match=r"t\.xlsx, row 3: column 'answer' must not be empty"):
        opera.load_data(path)


def test_several_sheets_a_broken_file_and_a_missing_package_are_errors_with_advice(tmp_path, monkeypatch):
    two = write(tmp_path / "two.xlsx", [["question", "answer"]], [["x"]])
    with pytest.raises(opera.DataError, match=r"has 2 sheets \('Sheet 0', 'Sheet 1'\); save the one with the pairs"):
        opera.load_data(two)
    (tmp_path / "broken.xlsx").write_text("question,answer\n")
    with pytest.raises(opera.DataError, match=r"broken\.xlsx: cannot be read"):
        opera.load_data(tmp_path / "broken.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(opera.DataError, match="save it as CSV UTF-8, or pip install openpyxl"):
        opera.load_data(two)
