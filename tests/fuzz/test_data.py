"""Data sources: spoilt files are read with every line accounted for, or refused; nothing half-written is left."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fuzzing import lines_of, only_refusals, spoilt, spoilt_values, to_json, workplace
from opera.data import SOURCES, RetrievalData, load_data

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


@given(BEIR)
def test_beir_folders(files: dict[str, bytes]) -> None:
    with workplace() as folder:
        (folder / "data/qrels").mkdir(parents=True)
        for name, content in files.items():
            (folder / "data" / name).write_bytes(content)

        def check(data: RetrievalData) -> None:
            documents, queries, judgements = (lines_of(files[name]) for name in NAMES)
            assert data.corpus.ids() == [json.loads(line)["_id"] for line in documents]
            assert data.queries.ids() == [json.loads(line)["_id"] for line in queries]
            merged = sum(int(found[1]) for note in data.notes if (found := re.search(r"merged (\d+)", note)))
            assert len(data.split("train").grades) + merged == len(judgements) - 1

        loads(folder / "data", check)


@given(lines(TRAIN))
def test_flagembedding_files(content: bytes) -> None:
    with workplace() as folder:
        (folder / "train.jsonl").write_bytes(content)

        def check(data: RetrievalData) -> None:
            records = [json.loads(line) for line in lines_of(content)]
            pairs = {(record["query"], text) for record in records for text in record["pos"]}
            assert data.queries.texts() == list(dict.fromkeys(record["query"] for record in records))
            assert len(data.split("train").doc_rows) == len(pairs)
            wrong = {(record["query"], text) for record in records for text in record.get("neg") or []}
            found = 0 if data.given_negatives is None else len(data.given_negatives.doc_rows)
            assert found == len(wrong - pairs)

        loads(folder / "train.jsonl", check)


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


def test_every_source_that_ships_has_a_fuzzer() -> None:
    shipped = {type(source).__name__ for source in SOURCES if type(source).__module__ == "opera.data.sources"}
    assert shipped == {"BeirFolder", "FlagEmbeddingFile", "PythonPackage"}, "add a fuzzer here, and bad inputs"
