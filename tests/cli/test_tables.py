"""Tables in place of DATA: one string for every command, kept by a run, and read again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import QUICK, Opera
from opera.data import load_data
from opera.data.loading import data_source
from opera.data.stored import load_stored
from opera.experiments.grid.plan import grid_axes, plan_grid
from opera.runs.folder import Run

COLUMNS = ("--columns", "query=q,document=shown,weight=n", "--columns", "split=part")


@pytest.fixture
def tables(beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small BEIR data as a Parquet file of documents and a CSV file of clicks."""
    data = load_data(beir)
    corpus = data.corpus.table
    pq.write_table(
        pa.table({"id": corpus["id"], "title": corpus["title"], "body": corpus["text"]}), tmp_path / "d.parquet"
    )
    with (tmp_path / "clicks.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["q", "shown", "n", "part", "day"])
        for split, qrels in data.splits.items():
            texts = data.queries.texts(qrels.query_rows[qrels.query_index])
            clicks = (qrels.grades / 2).tolist()
            writer.writerows(
                zip(texts, data.corpus.ids(qrels.doc_rows), clicks, [split] * len(texts), "m" * len(texts), strict=True)
            )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_evaluate_search_and_resume(tables: Path, run_opera: Opera, static_model: Path) -> None:
    given = ("--documents", "d.parquet", "--pairs", "clicks.csv", *COLUMNS)
    command = ("train", *given, "--model", static_model, "--out", tables / "run", *QUICK)
    done = run_opera(*command)
    assert done.returncode == 0, done.stderr
    run = Run.open(tables / "run")
    read = "clicks.csv: read 'q' as query, 'shown' as document, 'n' as weight, 'part' as split; not used: 'day'"
    assert read in run.record.data.notes
    source = run.record.data.source
    assert source.startswith("tables:documents=d.parquet&pairs=clicks.csv&columns.query=q&")
    assert load_data(source).fingerprint == run.record.data.fingerprint
    assert run_opera(*command, "--resume").returncode == 0
    assert load_stored(source).fingerprint == run.record.data.fingerprint
    measured = json.loads(run_opera("evaluate", *given, "--model", run.path, "--json").stdout)
    assert measured["measures"]["nDCG@10"] == pytest.approx(run.measures["after"]["nDCG@10"])
    assert (
        measured["measures"]
        == json.loads(run_opera("evaluate", source, "--model", run.path, "--json").stdout)["measures"]
    )
    for words in (("t1w5 t1w6", *given), (source, "t1w5 t1w6")):
        assert len(json.loads(run_opera("search", *words, "--model", run.path, "--json").stdout)) == 5


def test_one_file_with_columns(tables: Path, run_opera: Opera, static_model: Path) -> None:
    (tables / "faq.csv").write_text("asked,reply\n" + "".join(f"t{row}w5,t{row}w1 common{row}\n" for row in range(9)))
    refused = run_opera("evaluate", "faq.csv", "--model", static_model, "--split", "train")
    assert refused.returncode == 2
    option = "--columns query=asked,document=reply"
    assert option in refused.stderr
    done = run_opera("evaluate", "faq.csv", *option.split(), "--model", static_model, "--split", "train", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"] == "tables:pairs=faq.csv&columns.query=asked&columns.document=reply"


def test_a_grid_on_tables(tables: Path) -> None:
    columns = {"query": "q", "document": "shown", "weight": "n", "split": "part"}
    source = data_source(None, pairs="clicks.csv", documents="d.parquet", queries=None, columns=columns)
    axes, shared = grid_axes({}, ["ft", "rp"], [0], [4])
    cells = plan_grid([source], axes, Path("grid"), shared)
    assert {(cell.data, cell.data_name) for cell in cells} == {(source, "clicks")}
