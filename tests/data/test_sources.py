"""``load_data``: which source reads what, formats that other libraries write, and the cache."""

import json
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bad_inputs.table import edit
from opera.core.errors import DataError
from opera.data import RetrievalData, cache_folder, irds_source, load_data, register_source, sources
from tiny_world import data_from_dicts


def test_a_registered_source_comes_before_those_known(beir, monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", list(sources.SOURCES))
    known = load_data(beir)

    @register_source
    class Renamed:
        description = "the topics"

        def matches(self, source: str) -> bool:
            return source == str(beir)

        def load(self, source: str) -> RetrievalData:
            return data_from_dicts("renamed", corpus={}, queries={}, qrels={})

    assert load_data(beir).name == "renamed"
    assert load_data(f"{beir}/").fingerprint == known.fingerprint


def test_a_run_is_not_data(trained):
    with pytest.raises(DataError, match="is a run, not data; pass the data that it trained on"):
        load_data(trained.path)


PAIR = "query,document\na,b\n"
LINE = {"query": "a", "pos": ["b"]}
TWO_DEVS = {
    "a folder of tables": ({f"f/{name}.csv": PAIR for name in ("train", "dev", "my_validation")}, {"source": "f"}),
    "files": ({"a.csv": PAIR, "b.csv": PAIR}, {"pairs": {"dev": "a.csv", "validation": "b.csv"}}),
    "a column": (
        {"p.csv": "query,document,split\na,b,train\nc,d,dev\ne,f, Validation\n"}, {"source": "p.csv"}
    ),
    "BEIR": (
        {
            "f/corpus.jsonl": '{"_id": "d", "text": "b"}\n',
            "f/queries.jsonl": '{"_id": "q", "text": "a"}\n',
            **{f"f/qrels/{name}.tsv": "query-id\tcorpus-id\tscore\nq\td\t1\n" for name in ("dev", "validation")},
        },
        {"source": "f"},
    ),
    "a trainer": (
        {f"f/{name}.jsonl": json.dumps(LINE) + "\n" for name in ("train", "dev", "validation")}, {"source": "f"}
    ),
    "the hub": ({f"f/{name}.jsonl": json.dumps(LINE) + "\n" for name in ("dev", "validation")} | {
        "f/README.md": "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {name}\n    path: {name}.jsonl\n" for name in ("dev", "validation")) + "---\n"
    }, {"source": "hf:f"}),
    "memory": ({}, {"pairs": {"query": ["a", "b"], "document": ["c", "d"], "split": ["dev", "validation"]}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", TWO_DEVS)
def test_two_names_of_dev_are_an_error(kind, tmp_path, monkeypatch):
    files, arguments = TWO_DEVS[kind]
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    with pytest.raises(DataError, match="the splits 'dev' and 'validation' both mean dev; rename one of them"):
        load_data(**arguments)


def test_two_names_of_dev_in_ir_datasets_are_an_error(monkeypatch):
    Document, Query = namedtuple("Document", "doc_id text"), namedtuple("Query", "query_id text")

    class Part:
        has_qrels = has_queries = staticmethod(lambda: True)
        docs_metadata = staticmethod(dict)
        docs_iter = staticmethod(lambda: [Document("d", "b")])
        queries_iter = staticmethod(lambda: [Query("q", "a")])
        qrels_iter = staticmethod(lambda: [SimpleNamespace(query_id="q", doc_id="d", relevance=1)])

    registry = {f"small/{name}": Part() for name in ("train", "dev", "val")}
    library = SimpleNamespace(
        registry=registry, load=registry.__getitem__, util=SimpleNamespace(home_path=lambda: "/nowhere")
    )
    monkeypatch.setattr(irds_source, "_library", lambda _: library)
    with pytest.raises(DataError, match="irds:small: the splits 'dev' and 'val' both mean dev"):
        load_data("irds:small")


def test_splits_of_several_files_with_one_name_are_one_split(tmp_path):
    for name in ("nq_dev", "fever_dev", "train"):
        (tmp_path / f"{name}.csv").write_text(PAIR)
    assert list(load_data(tmp_path).splits) == ["dev", "train"]
    (tmp_path / "corpus.jsonl").write_text('{"id": "d", "text": "b"}\n')
    for name in ("nq_dev", "fever_dev", "train"):
        (tmp_path / f"{name}.csv").unlink()
    (tmp_path / "test_queries.jsonl").write_text('{"id": "q", "text": "a"}\n')
    (tmp_path / "validation_qrels.jsonl").write_text('{"qid": "q", "docid": "d"}\n')
    assert list(load_data(tmp_path).splits) == ["dev"]


TABLE = pa.table({"question": ["one", "two"], "answer": ["a", "b"]})


@pytest.mark.parametrize("several", [False, True])
def test_folders_that_datasets_saved_are_read(several, tmp_path):
    part = datasets.Dataset(TABLE)
    saved = datasets.DatasetDict(train=part, validation=part) if several else part
    saved.save_to_disk(str(tmp_path / "saved"))
    data = load_data(tmp_path / "saved")
    assert (data.queries.texts(), data.corpus.texts()) == (["one", "two"], ["a", "b"])
    assert set(data.splits) == ({"train", "dev"} if several else {"train"})


@pytest.mark.parametrize(("kind", "end"), [(pa.float16(), 2**11), (pa.float32(), 2**24), (pa.float64(), 2**53)])
def test_ids_that_a_float_may_have_rounded_are_refused(tmp_path, kind, end):
    pq.write_table(pa.table({"query": ["a"], "doc_id": [str(end - 1)]}), tmp_path / "p.parquet")
    ids = pa.array(np.array([1, end], dtype=kind.to_pandas_dtype()))
    pq.write_table(pa.table({"id": ids, "text": ["x", "y"]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=rf"row 2: column 'id' must be .*is exact only below {end:,}: store"):
        load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")


def test_a_renamed_folder_is_read_anew(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "ab-test.csv").write_text("query,document\na,b\n")
    before = load_data(tmp_path)
    (tmp_path / "test").rename(tmp_path / "dev")
    after = load_data(tmp_path)
    assert (set(before.splits), set(after.splits)) == ({"train", "test"}, {"train", "dev"})
    assert before.fingerprint != after.fingerprint


def test_the_source_leads_back_to_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a & b.csv").write_text("an id,words\n1,one\n")
    (tmp_path / "p.csv").write_text("query,document\nx,1\n")
    data = load_data(pairs={"test": "p.csv"}, documents="a & b.csv", columns={"id": "an id", "text": "words"})
    words = "--pairs test=p.csv --documents 'a & b.csv' --columns 'id=an id' --columns text=words"
    assert str(data.source) == words
    assert data.title == "a & b.csv, p.csv"
    assert load_data(data.source).fingerprint == data.fingerprint


def test_second_load_comes_from_the_cache_and_is_the_same(make_beir):
    folder = make_beir()
    first, stored = load_data(folder), set((cache_folder() / "data").iterdir())
    assert load_data(folder).fingerprint == first.fingerprint
    assert set((cache_folder() / "data").iterdir()) == stored
    edit("queries.jsonl", 1, '{"_id": "train0", "text": "something else"}')(folder)
    assert load_data(folder).fingerprint != first.fingerprint


def test_a_failed_read_leaves_nothing_in_the_cache(make_beir):
    folder = make_beir()
    edit("qrels/train.tsv", 2, "nobody\td0\t1")(folder)
    before = set((cache_folder() / "data").iterdir())
    with pytest.raises(DataError):
        load_data(folder)
    assert set((cache_folder() / "data").iterdir()) == before


def test_splits_with_names_that_no_run_uses_get_a_note(make_beir):
    folder = make_beir()
    assert not any("splits named" in note for note in load_data(folder).notes)
    for name in ("holdout", "extra"):
        shutil.copy(folder / "qrels" / "test.tsv", folder / "qrels" / f"{name}.tsv")
    note = "a run uses only splits named train, dev, val, valid, validation, test, and not 'extra', 'holdout'"
    assert note in load_data(folder).notes
