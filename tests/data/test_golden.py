"""Small inputs of every format are loaded as ``golden.json`` has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data import golden

EXPECTED = json.loads(golden.GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("irds")
@pytest.mark.parametrize("name", golden.CASES)
def test_a_case_is_loaded_as_before(name: str) -> None:
    assert golden.outcome(name) == EXPECTED[name]


LINES = [name for name, (files, _) in golden.CASES.items() if any(".csv" in file or ".tsv" in file for file in files)]


@pytest.mark.parametrize("name", LINES)
def test_a_file_read_line_by_line_is_loaded_as_by_duckdb(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))
    with golden.read_line_by_line():
        assert golden.outcome(name) == EXPECTED[name]


def test_every_case_has_a_result() -> None:
    assert EXPECTED.keys() == golden.CASES.keys()
