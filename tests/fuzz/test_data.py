"""Data sources: spoilt files are read with every line accounted for, or refused; nothing half-written is left."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import lines_of, only_refusals, spoilt, spoilt_values, to_json, workplace
from irds_world import irds_home, write_antique
from opera.data import SOURCES, RetrievalData, load_data
from opera.data.sources import LOCAL

CORPUS = [
    {"_id": "d0", "title": "of one", "text": "a text", "metadata": {"a": [1, {"b": None}]}},
    {"_id": "d1", "text": "caf\u00e9 \u2028 \U0001f600"},
    {"_id": "d2", "title": "", "text": 'with "quotes", \ttabs\n and lines'},
]
QUERIES = [{"_id": "q0", "text": "one"}, {"_id": "q1", "text": "two", "metadata": {}}]
TRAIN = [{"query": "one", "pos": ["a", "b"], "neg": ["c"], "pos_scores": [1, 0.5]}, {"query": "two", "pos": ["c"]}]
QRELS = b"query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\td1\t2\nq1\td2\t1\nq1\td0\t0\nq1\td0\t0\n"


def json_lines(values: list[Any]) -> bytes:
    return b"".join(to_json(value) + b"\n" for value in values)


def lines(values: list[Any]) -> st.SearchStrategy[bytes]:
    """Spoil the bytes of JSON Lines, or the values in them."""
    changed = spoilt_values(values).filter(lambda value: isinstance(value, list))
    return spoilt(json_lines(values)) | changed.map(json_lines)


NAMES = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv")
VALID = dict(zip(NAMES, (json_lines(CORPUS), json_lines(QUERIES), QRELS), strict=True))
BEIR = st.one_of(
    lines(CORPUS).map(lambda content: {**VALID, "corpus.jsonl": content}),
    lines(QUERIES).map(lambda content: {**VALID, "queries.jsonl": content}),
    spoilt(QRELS).map(lambda content: {**VALID, "qrels/train.tsv": content}),
)


def loads(source: Path, check: Callable[[RetrievalData], None]) -> None:
    """Load what is read a second time, from the cache, to the same end."""
    with only_refusals(lambda message: message.startswith(str(source))):
        data = load_data(source)
        for found in (data, load_data(source)):
            check(found)
            assert found.fingerprint == data.fingerprint


def as_text(value: Any) -> str:
    """Numbers count as texts."""
    return value if isinstance(value, str) else repr(value)


@given(BEIR)
def test_beir_folders(files: dict[str, bytes]) -> None:
    with workplace() as folder:
        (folder / "data/qrels").mkdir(parents=True)
        for name, content in files.items():
            (folder / "data" / name).write_bytes(content)

        def check(data: RetrievalData) -> None:
            documents, queries, judgements = (lines_of(files[name]) for name in NAMES)
            assert data.corpus.ids() == [as_text(json.loads(line)["_id"]) for line in documents]
            assert data.queries.ids() == [as_text(json.loads(line)["_id"]) for line in queries]
            merged = sum(int(found[1]) for note in data.notes if (found := re.search(r"merged (\d+)", note)))
            assert len(data.split("train").grades) + merged == len(judgements) - 1

        loads(folder / "data", check)


@given(lines(TRAIN))
def test_flagembedding_files(content: bytes) -> None:
    with workplace() as folder:
        (folder / "train.jsonl").write_bytes(content)

        def check(data: RetrievalData) -> None:
            records = [json.loads(line) for line in lines_of(content)]
            queries = [as_text(record["query"]) for record in records]
            pairs, wrong = (
                {
                    (query, as_text(text))
                    for query, record in zip(queries, records, strict=True)
                    for text in record.get(key) or []
                }
                for key in ("pos", "neg")
            )
            assert data.queries.texts() == list(dict.fromkeys(queries))
            assert len(data.split("train").doc_rows) == len(pairs)
            found = 0 if data.given_negatives is None else len(data.given_negatives.doc_rows)
            assert found == len(wrong - pairs)

        loads(folder / "train.jsonl", check)


TEVATRON = [
    {
        "query_id": "1",
        "query": "one",
        "positive_passages": [{"docid": "a", "title": "of a", "text": "a text"}],
        "negative_passages": [{"docid": 2, "text": "two"}],
    },
    {"query_id": 2, "query": "other", "positive_document_ids": ["a"], "answers": []},
]


@given(lines(TEVATRON))
def test_tevatron_files(content: bytes) -> None:
    with workplace() as folder:
        (folder / "first.jsonl").write_bytes(json_lines(TEVATRON[:1]))
        (folder / "train.jsonl").write_bytes(content)

        def check(data: RetrievalData) -> None:
            train = data.split("train")
            assert "1" in data.queries.ids()
            assert "a" in data.corpus.ids()
            assert len(train.doc_rows) >= 1
            assert train.query_rows.max() < len(data.queries)

        loads(folder, check)


EVALUATION = {
    "corpus.jsonl": [{"id": "x", "title": "of x", "text": "a text"}, {"id": 2, "text": "two"}],
    "test_queries.jsonl": [{"id": "t", "text": "asked"}],
    "test_qrels.jsonl": [{"qid": "t", "docid": "x", "relevance": 1}, {"qid": "t", "docid": 2}],
    "train.jsonl": [{"query": "seen", "pos": ["two"], "neg_scores": None, "prompt": "find: "}],
}


@given(st.sampled_from(sorted(EVALUATION)).flatmap(lambda name: lines(EVALUATION[name]).map(lambda text: (name, text))))
def test_folders_of_flagembedding(spoilt_file: tuple[str, bytes]) -> None:
    with workplace() as folder:
        for name, records in EVALUATION.items():
            (folder / name).write_bytes(spoilt_file[1] if name == spoilt_file[0] else json_lines(records))

        def check(data: RetrievalData) -> None:
            for qrels in data.splits.values():
                assert qrels.doc_rows.max() < len(data.corpus)
                assert qrels.query_rows.max() < len(data.queries)

        loads(folder, check)


MODULE = b'''"""A module."""
if True:
    def first(x):
        """Return the first of %s things.

        It must not be empty; there is more text here.
        """
        return x[0]  # and some more characters
class Things(list):
    """Hold a number of things %s."""
    @property
    def last(self):
        "Return the last of these %s."
        return self[-1]  # and some more characters
'''


@given(spoilt(MODULE.replace(b"%s", b"two")))
def test_source_code(content: bytes) -> None:
    with workplace() as folder:
        (folder / "fuzzed").mkdir()
        (folder / "fuzzed" / "__init__.py").write_bytes(MODULE.replace(b"%s", b"one"))
        (folder / "fuzzed" / "spoilt.py").write_bytes(content)
        sys.path.insert(0, str(folder))
        try:
            with only_refusals(lambda message: message.startswith("python:fuzzed: ")):
                data = load_data("python:fuzzed")
                assert any(name.startswith("fuzzed.first") for name in data.queries.ids())
                assert len(data.corpus) >= len(data.queries)
        finally:
            sys.path.remove(str(folder))
            sys.path_importer_cache.pop(str(folder), None)


ANTIQUE = {
    "collection.tsv": b"1_0\tan answer\n1_1\tanother\n2_0\tcaf\xc3\xa9\n",
    "train/queries.txt": b"3\thow?\n4\twhy?\n",
    "train/qrels": b"3 U0 1_0 4\n3 Q0 1_1 3\n4 Q0 2_0 2\n",
}


@pytest.mark.usefixtures("irds")
@given(st.sampled_from(sorted(ANTIQUE)).flatmap(lambda name: st.tuples(st.just(name), spoilt(ANTIQUE[name]))))
def test_files_of_ir_datasets(changed: tuple[str, bytes]) -> None:
    home = irds_home() / "antique"
    with workplace():
        try:
            for name, content in {**ANTIQUE, changed[0]: changed[1]}.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_bytes(content)
            with only_refusals(lambda message: message.startswith("irds:antique/train: ")):
                data = load_data("irds:antique/train")
                assert len(set(data.corpus.ids())) == len(data.corpus)
                assert data.split("train").n_queries <= len(data.queries)
        finally:
            shutil.rmtree(home)
            write_antique(home)


def are_records(values: Any) -> bool:
    """Whether lines are objects: at others Arrow's JSON reader, which the library uses, ends the process."""
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


@given(spoilt_values(TRAIN).filter(are_records).map(json_lines))
def test_data_sets_of_the_hub(content: bytes) -> None:
    with workplace() as folder:
        (folder / "pairs").mkdir()
        (folder / "pairs" / "train.jsonl").write_bytes(content)
        with only_refusals(lambda message: message.startswith(f"hf:{folder}/pairs")):
            data = load_data(f"hf:{folder}/pairs")
            assert len(set(data.corpus.texts())) == len(data.corpus)
            assert all(text.strip() for text in data.queries.texts())


def test_every_source_that_ships_has_a_fuzzer() -> None:
    shipped = {source.description for source in SOURCES if type(source).__module__ == "opera.data.sources"}
    files = {source.description for source in LOCAL}  # tables: test_tables.py
    assert [source.kind for source in LOCAL] == ["beir", "trainer", "tables"]
    named = {"python:PACKAGE", "paper:NAME", "irds:ID", "hf:OWNER/NAME", "--pairs FILE"}
    assert shipped == files | named, "add a fuzzer here, and bad inputs"
