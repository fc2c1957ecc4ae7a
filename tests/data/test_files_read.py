"""What may be written beside data that are read, and data that a file names."""

import sys
from pathlib import Path

import pytest

from opera.core.errors import DataError, SettingError
from opera.data import check_stays_out, load_data
from opera.data.loading import load_stored
from opera.data.names import TableSource

FLAG = '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
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
        ("linked", "tables/in/a.TSV"),
        (TableSource.of("tables"), "linked/run"),
        ("files", "files/a.jsonl"),
        ("beir", "beir/qrels/a.tsv"),
        ("hf:tables", "tables/a.trec"),
    ],
)
def test_an_output_inside_the_data_is_refused(here, source, place):
    with pytest.raises(SettingError):
        check_stays_out(Path(place), "out", source)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("tables", "tables/.hidden/a.tsv"),
        (TableSource.of("tables/train.csv"), "tables/a.jsonl"),
        ("beir", "beir/run"),
        ("hf:someone/tables", "tables/a.tsv"),
        ("memory:a", "a.tsv"),
    ],
)
def test_an_output_that_no_source_reads_is_accepted(here, source, place):
    check_stays_out(Path(place), "out", source)


def test_a_cache_inside_the_data_is_refused_unless_it_is_hidden(here, monkeypatch):
    monkeypatch.setenv("OPERA_CACHE", "tables/cache")
    before = sorted(here.rglob("*"))
    for load in (load_data, load_stored):
        with pytest.raises(SettingError, match="OPERA_CACHE"):
            load("tables")
    assert sorted(here.rglob("*")) == before
    monkeypatch.setenv("OPERA_CACHE", "tables/.cache")
    assert load_data("tables").counts()["documents"] == 1


@pytest.mark.parametrize("source", ["irds:beir/fiqa", "hf:mteb/fiqa", TableSource.of("hf:mteb/fiqa")])
def test_a_name_that_comes_from_a_file_is_never_fetched(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError):
        load_stored(source)
