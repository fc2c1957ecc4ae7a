"""What may be written beside data that are read, and data that a file names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import opera
from opera.core.errors import DataError, SettingError
from opera.data import check_stays_out, load_data
from opera.data.combined import combine
from opera.data.files_read import load_stored
from small_runs import SMALL

FLAG = '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (
        ("tables/train.csv", "query,document\na,b\n"),
        ("files/train.jsonl", FLAG),
        ("beir/corpus.jsonl", '{"_id": "d", "text": "b"}\n'),
        ("beir/queries.jsonl", '{"_id": "q", "text": "a"}\n'),
        ("beir/qrels/train.tsv", "query-id\tcorpus-id\tscore\nq\td\t1\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "linked").symlink_to("tables")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("tables", "tables/in/a.TSV"),
        ("linked", "tables/run"),
        ("tables:pairs=tables", "linked/a.tsv"),
        ("files", "files/a.jsonl"),
        ("beir", "beir/qrels/a.tsv"),
        ("hf:tables", "tables/a.trec"),
        ("hf:tables", "tables-qrels/a.trec"),
    ],
)
def test_what_would_be_data_is_refused(here: Path, source: str, place: str) -> None:
    (here / "tables-qrels").mkdir()
    with pytest.raises(SettingError, match=f"^out {place}: is inside .*, which OPERA reads as data"):
        check_stays_out(Path(place), "out", source)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("tables", "a.jsonl"),
        ("tables", "tables/.hidden/a.tsv"),
        ("tables:pairs=tables/train.csv", "tables/a.jsonl"),
        ("files/train.jsonl", "files/a.jsonl"),
        ("beir", "beir/run"),
        ("hf:someone/tables", "tables/a.tsv"),
        ("memory:a", "a.tsv"),
    ],
)
def test_what_can_be_no_data_is_not(here: Path, source: str, place: str) -> None:
    check_stays_out(Path(place), "out", source)


def test_each_of_several_sets_is_looked_at(here: Path) -> None:
    both = combine([load_data("beir"), load_data("tables")])
    with pytest.raises(SettingError, match="is inside tables"):
        check_stays_out(here / "tables" / "run", "--out", both)
    made = load_data([("a", "b")])
    check_stays_out(here / "tables" / "run", "--out", made)


def test_the_cache_lies_in_no_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", "tables/cache")
    before = sorted(here.rglob("*"))
    for load in (load_data, load_stored):
        with pytest.raises(
            SettingError, match=r"^OPERA_CACHE tables/cache: is inside tables, which OPERA reads as data"
        ):
            load("tables")
    assert sorted(here.rglob("*")) == before
    monkeypatch.setenv("OPERA_CACHE", "tables/.cache")
    assert load_data("tables").counts()["documents"] == 1


@pytest.mark.parametrize("source", ["irds:beir/fiqa", "hf:mteb/fiqa", "tables:pairs=hf:mteb/fiqa"])
def test_what_a_file_names_is_not_fetched(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError):
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
