"""The example of a data source works everywhere that takes data: one class and one line."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

import opera
from opera.cli import app
from opera.core.errors import DataError
from opera.data import sources

EXAMPLE = Path(__file__).parent / "data_source_example.py"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "SOURCES", list(sources.SOURCES))
    runpy.run_path(str(EXAMPLE))
    path = tmp_path / "faq.csv"
    lines = [f'"t{topic}w5 t{topic}w6?","t{topic}w1, t{topic}w2"' for topic in range(10)]
    path.write_text("\n".join(["question,answer", *lines]))
    return path


def test_the_registered_source_is_read(table: Path) -> None:
    data = opera.load_data(table)
    assert (data.name, data.source) == ("faq", str(table))
    assert data.counts() == {"documents": 10, "train_queries": 10, "train_pairs": 10}
    assert data.queries.texts()[3] == "t3w5 t3w6?"
    assert data.corpus.texts()[3] == "t3w1, t3w2"


def test_the_error_for_unknown_data_names_it(table: Path) -> None:
    with pytest.raises(DataError, match=r"pass a \.csv file with the columns question and answer, a BEIR folder"):
        opera.load_data(table.with_suffix(".xlsx"))


def test_commands_take_it(table: Path, static_model: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", str(table), "--model", str(static_model), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["counts"]["train_pairs"] == 10


def test_training_takes_it(table: Path, static_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(table, model=static_model, method="ft", out=tmp_path / "run", max_steps=2)
    assert run.finished
    assert opera.evaluate(table, model=run.path).measures["nDCG@10"] == pytest.approx(run.measures["after"]["nDCG@10"])
