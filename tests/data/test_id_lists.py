"""Files of pairs: a teacher's scores, and pairs to leave out."""

from pathlib import Path

import pytest

from opera.data import Mixture, load_all, load_data
from opera.data.list_matching import with_teacher
from tiny_world import write_table

LINES = [("train0", "d0", 1.5), ("train0", "d7", -2.25), ("train1", "d0", 0.0)]


def write(path: Path, score: str = "score") -> Path:
    return write_table(
        path, [{"grade": 1, "query_id": query, score: value, "doc_id": doc} for query, doc, value in LINES]
    )


@pytest.mark.parametrize("suffix", [".parquet", ".tsv", ".csv", ".jsonl"])
@pytest.mark.parametrize("column", ["score", "similarity"])
def test_every_format_gives_the_same(beir, tmp_path, suffix, column):
    data = load_data(beir)
    teacher = with_teacher(Mixture.of(data), write(tmp_path / f"t{suffix}", column)).joined.teacher
    rows = data.queries.find_rows([query for query, _, _ in LINES]), data.corpus.find_rows([doc for _, doc, _ in LINES])
    assert teacher.lookup(*rows).tolist() == [1.5, -2.25, 0.0]
    assert len(teacher) == 3


def test_pairs_that_the_data_lack_are_noted(beir, tmp_path):
    path = write(tmp_path / "t.tsv")
    path.write_text(path.read_text() + "1\ttrain0\t3\tnowhere\n")
    data = with_teacher(load_all([beir]), path).joined
    assert (
        data.notes[-1] == f"{path}: 3 of 4 scores match {data.title}; OPERA ignores query 'train0', document 'nowhere'"
    )
