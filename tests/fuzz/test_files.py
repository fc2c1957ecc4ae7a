"""Files that OPERA reads: spoilt ones are read with everything accounted for, or refused with the file's name."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from fuzzing import Files, few, json_lines, one_spoilt, only_refusals, workplace
from opera.adapter.vectors import FileVectors
from opera.data import RetrievalData, TextTable
from opera.data.pair_files import with_teacher
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import load_model


def saved(save: Callable[..., object], *given: Any, **named: Any) -> bytes:
    """What a library writes to a file."""
    file = io.BytesIO()
    if save is pq.write_table:
        save(pa.table(given[0]), file, **named)
    else:
        save(file, *given, **named)
    return file.getvalue()


IDS = ["a", "b", "c", "more"]
TABLE = TextTable.from_texts(dict.fromkeys(IDS[:3], "text"))
VECTORS = np.array([[3, 0], [0, 2], [1, 1], [5, 5]], dtype=np.float32)
NPY = saved(np.save, VECTORS)


def vectors_are_read(path: Path) -> None:
    vectors = FileVectors(path, TABLE, "query")[np.arange(len(TABLE))]
    assert vectors.shape[0] == len(TABLE)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)  # rounded to float32


DATA = RetrievalData.from_dicts(
    "data", corpus={"d0": "a", "d1": "b"}, queries={"q0": "c"}, qrels={"train": {"q0": {"d0": 1}}}
)
SCORES = [("q0", "d0", 1.5), ("q0", "d1", -2.0), ("other", "d1", 0.25)]
COLUMNS = ("query_id", "doc_id", "score")


def teacher_is_read(path: Path) -> None:
    teacher = with_teacher(DATA, path).teacher
    assert teacher is not None
    assert np.isfinite(teacher.scores).all()


READERS: dict[str, tuple[Files, Callable[[Path], None]]] = {
    "array": ({"v.npy": NPY, "v.txt": b"a\nb\nc\nmore\n"}, vectors_are_read),
    "parquet": ({"v.parquet": saved(pq.write_table, {"id": IDS, "vector": list(VECTORS)})}, vectors_are_read),
    "teacher": ({"t.jsonl": json_lines([dict(zip(COLUMNS, row, strict=True)) for row in SCORES])}, teacher_is_read),
}  # fmt: skip
"""Files, the first of which is named to what reads them."""


@pytest.mark.parametrize("kind", READERS)
def test_vectors_and_teachers(kind: str) -> None:
    files, read = READERS[kind]

    @few(50)
    @given(one_spoilt(files))
    def check(spoilt_files: Files) -> None:
        with workplace(spoilt_files) as folder, only_refusals(lambda message: message.startswith(str(folder))):
            read(folder / next(iter(files)))

    check()


def test_model_folders(static_model: Path) -> None:
    """Spoilt ones encode, or are refused; what is loaded never runs code."""
    files = {str(path.relative_to(static_model)): path.read_bytes() for path in static_model.rglob("*.*")}

    @given(one_spoilt(files))
    def check(spoilt_files: Files) -> None:
        with workplace(spoilt_files) as place, only_refusals():
            encoder = Encoder(load_model(place, "cpu"), use_cache=False)
            assert np.isfinite(encoder.encode(["t1w2 common3", "nothing known"], "query")).all()

    check()
