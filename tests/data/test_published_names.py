"""Nothing that a file names is fetched: recipes, runs and reports that name published data only name them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import opera
from opera.core.errors import DataError
from opera.data.names import source_name
from opera.data.stored import load_stored
from small_runs import SMALL

NAMES = ["paper:fiqa", "irds:beir/fiqa", "hf:mteb/fiqa"]


@pytest.mark.parametrize("source", NAMES)
def test_what_a_file_names_is_not_fetched(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert source_name(source) == "fiqa"
    with pytest.raises(DataError, match=r"not a folder or file that OPERA reads; pass the data yourself"):
        load_stored(source)


@pytest.mark.usefixtures("irds")
def test_a_report_of_a_run_on_published_data_fetches_nothing(
    static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "max_steps": 2, "save_steps": 2, "guard": False, "per_device_train_batch_size": 1}
    run = opera.adapt("paper:fever", model=static_model, out=tmp_path / "run", **settings)
    assert run.record.data.source == "paper:fever"
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    assert "fever" in opera.report(tmp_path / "run").read_text()
