"""Files of a teacher's scores: spoilt ones are read, or refused with the file's name."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import only_refusals, spoilt, workplace
from opera.data import RetrievalData
from opera.data.teacher_file import with_teacher

DATA = RetrievalData.from_dicts(
    "data", corpus={"d0": "a", "d1": "b"}, queries={"q0": "c"}, qrels={"train": {"q0": {"d0": 1}}}
)
ROWS = [("q0", "d0", 1.5), ("q0", "d1", -2.0), ("other", "d1", 0.25)]


def parquet() -> bytes:
    file, (query, doc, score) = io.BytesIO(), zip(*ROWS, strict=True)
    pq.write_table(pa.table({"query_id": query, "doc_id": doc, "score": score}), file)
    return file.getvalue()


FILES = {
    ".parquet": parquet(),
    ".tsv": ("query_id\tdoc_id\tscore\n" + "".join(f"{q}\t{d}\t{s}\n" for q, d, s in ROWS)).encode(),
    ".jsonl": "".join(f'{{"query_id": "{q}", "doc_id": "{d}", "score": {s}}}\n' for q, d, s in ROWS).encode(),
}


@pytest.mark.parametrize("suffix", list(FILES))
@given(drawn=st.data())
def test_spoilt_files(suffix: str, drawn: st.DataObject) -> None:
    content = drawn.draw(spoilt(FILES[suffix]))
    with workplace() as folder, only_refusals(lambda message: message.startswith(str(folder))):
        (folder / f"t{suffix}").write_bytes(content)
        teacher = with_teacher(DATA, folder / f"t{suffix}").teacher
        assert teacher is not None
        assert np.isfinite(teacher.scores).all()
