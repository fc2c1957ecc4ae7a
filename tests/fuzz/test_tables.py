"""Tables: spoilt CSV, TSV, JSON Lines, Parquet and Arrow files are read whole or refused in one message."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import only_refusals, spoilt, workplace
from opera.data import RetrievalData, load_data

ROWS = {
    "question": ["one", "two", 'with "marks", and\nlines', "caf\u00e9 \U0001f600"],
    "answer": ["a text", "b", "c", "a text"],
    "negative_1": ["b", "c", "a text", "d"],
    "clicks": [1.5, 2.0, 0.0, 7.0],
    "split": ["train", "train", "test", "train"],
}
TABLE = pa.table(ROWS)


def _csv(delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(ROWS)
    writer.writerows(zip(*ROWS.values(), strict=True))
    return text.getvalue().encode()


def _written(write: Callable[[io.BytesIO], object]) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def _arrow(sink: io.BytesIO) -> None:
    with pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)


def _stream(sink: io.BytesIO) -> None:
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)


JSON = b'{"question":"one","answer":"a","negatives":["b","c"]}\n{"question":"two","answer":["b","d"]}\n'
FILES = {
    "t.csv": _csv(),
    "t.tsv": b"question\tanswer\tclicks\none\ta\t1\ntwo\tb\t2\n",
    "t.jsonl": JSON,
    "t.parquet": _written(lambda sink: pq.write_table(TABLE, sink)),
    "t.arrow": _written(_arrow),
    "t.feather": _written(_stream),
}
SPOILT = st.sampled_from(sorted(FILES)).flatmap(lambda name: spoilt(FILES[name]).map(lambda content: (name, content)))


def check(data: RetrievalData) -> None:
    """Every row number leads somewhere, every pair stands for texts that are there, and every weight is one."""
    assert sum(len(qrels.doc_rows) for qrels in data.splits.values()) > 0
    for qrels in data.splits.values():
        assert qrels.doc_rows.max(initial=0) < len(data.corpus)
        assert qrels.query_rows.max(initial=0) < len(data.queries)
        if qrels.weights is not None:
            assert ((qrels.weights > 0) >= (qrels.grades > 0)).all()
    for table in (data.corpus, data.queries):
        assert len(set(table.ids())) == len(table)
        assert len(table.empty_rows()) == 0


def loads(place: str, read: Callable[[], RetrievalData]) -> None:
    with only_refusals(lambda message: place in message or "--columns" in message):
        found = read()
        check(found)
        assert read().fingerprint == found.fingerprint


@given(SPOILT)
def test_tables_of_pairs(spoilt_file: tuple[str, bytes]) -> None:
    name, content = spoilt_file
    with workplace() as folder:
        (folder / name).write_bytes(content)
        loads(name, lambda: load_data(folder / name))


TEXTS = {
    "docs.parquet": _written(
        lambda sink: pq.write_table(pa.table({"doc_id": [7, 8], "body": ["seven", "eight"]}), sink)
    ),
    "q.tsv": b"1\twhat is it\n2\tand then\n",
    "qrels.txt": b"1 0 7 1\n2\t0\t8 2\n2 0 7 0\n",
}


@given(
    st.sampled_from(sorted(TEXTS)).flatmap(lambda name: spoilt(TEXTS[name]).map(lambda content: (name, content))),
)
def test_texts_and_qrels(spoilt_file: tuple[str, bytes]) -> None:
    with workplace() as folder:
        for name, content in {**TEXTS, spoilt_file[0]: spoilt_file[1]}.items():
            (folder / name).write_bytes(content)

        def read() -> RetrievalData:
            return load_data(pairs=folder / "qrels.txt", documents=folder / "docs.parquet", queries=folder / "q.tsv")

        with only_refusals(lambda message: str(folder) in message):
            data = read()
            for qrels in data.splits.values():
                assert qrels.doc_rows.max(initial=0) < len(data.corpus)
                assert qrels.query_rows.max(initial=0) < len(data.queries)
            assert read().fingerprint == data.fingerprint


@pytest.mark.parametrize("name", FILES)
def test_the_files_as_they_are(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    check(load_data(tmp_path / name))
