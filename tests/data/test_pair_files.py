"""Files of pairs: a teacher's scores, and pairs to leave out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData, load_data
from opera.data.pair_files import with_teacher, without_pairs

LINES = [("train0", "d0", 1.5), ("train0", "d7", -2.25), ("train1", "d0", 0.0)]


def write(path: Path, score: str = "score") -> Path:
    if path.suffix == ".parquet":
        query, doc, value = zip(*LINES, strict=True)
        pq.write_table(pa.table({"grade": [1, 0, 1], "doc_id": doc, "query_id": query, score: value}), path)
    elif path.suffix in (".tsv", ".csv"):
        rows = [("grade", "query_id", score, "doc_id"), *(("1", query, value, doc) for query, doc, value in LINES)]
        path.write_text("".join(("\t" if path.suffix == ".tsv" else ",").join(map(str, row)) + "\n" for row in rows))
    else:
        rows = [f'{{"query_id": "{query}", "doc_id": "{doc}", "{score}": {value}}}' for query, doc, value in LINES]
        path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".tsv", ".csv", ".jsonl"])
@pytest.mark.parametrize("column", ["score", "similarity"])
def test_every_format_gives_the_same(beir: Path, tmp_path: Path, suffix: str, column: str) -> None:
    data = load_data(beir)
    teacher = with_teacher(data, write(tmp_path / f"t{suffix}", column)).teacher
    assert teacher is not None
    rows = data.queries.find_rows([query for query, _, _ in LINES]), data.corpus.find_rows([doc for _, doc, _ in LINES])
    assert teacher.lookup(*rows).tolist() == [1.5, -2.25, 0.0]
    assert len(teacher) == 3


def test_pairs_that_the_data_lack_are_noted(beir: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv")
    path.write_text(path.read_text() + "1\ttrain0\t3\tnowhere\n")
    data = with_teacher(load_data(beir), path)
    assert data.notes[-1] == f"{path}: 1 of 4 scores are of pairs that the data lack: they are not used"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.xlsx", "", r"t\.xlsx: must be a table"),
        ("t.tsv", "query_id\tdoc_id\n", r"t\.tsv: column 'score' is missing \(it has: query_id, doc_id\)"),
        ("t.tsv", "query_id\tdoc_id\tscore\nq\td\n", r"t\.tsv:2: "),
        ("t.tsv", "query_id\tdoc_id\tscore\nq\td\tnan\n", r"t\.tsv:2: column 'score' must be a number, got 'nan'"),
        (
            "t.tsv",
            "query_id\tdoc_id\tscore\nq\td\t1\n",
            r"none of its 1 pairs is of .*topics \(query 'q', document 'd'\)",
        ),
        (
            "t.jsonl",
            '{"query_id": "q", "doc_id": "d", "score": "high"}\n',
            r"t\.jsonl:1: column 'score' must be a number",
        ),
        ("t.jsonl", '{"query": "q", "pos": ["d"]}\n', "is a training file with texts; pass it as the data"),
        ("t.jsonl", "[]\n", "must be a JSON object"),
        ("t.csv", b"query_id,doc_id,score\nq,caf\xe9,1\n", "is not UTF-8; convert the file to UTF-8"),
        ("t.parquet", "PAR1", r"t\.parquet: cannot be read \("),
    ],
)
def test_bad_files_are_refused(beir: Path, tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        with_teacher(load_data(beir), tmp_path / name)


def judged(data: RetrievalData, split: str) -> set[tuple[str, str]]:
    qrels = data.splits[split]
    queries, documents = data.queries.ids(), data.corpus.ids()
    return {
        (queries[q], documents[d]) for q, d in zip(qrels.query_rows[qrels.query_index], qrels.doc_rows, strict=True)
    }


def test_listed_pairs_leave_train_and_dev_and_never_test(make_beir: Callable[..., Path], tmp_path: Path) -> None:
    data = load_data(make_beir(dev=True))
    listed = [min(judged(data, split)) for split in ("train", "dev", "test")]
    every_of_a_query = [pair for pair in judged(data, "train") if pair[0] == "train7"]
    rows = [*listed, *every_of_a_query, ("train0", "no document")]
    (tmp_path / "list.csv").write_text("note,query_id,doc_id\n" + "".join(f"any, {q} ,{d}\n" for q, d in rows))
    left = without_pairs(data, [tmp_path / "list.csv"])
    assert judged(left, "train") == judged(data, "train") - {listed[0], *every_of_a_query}
    assert judged(left, "dev") == judged(data, "dev") - {listed[1]}
    assert judged(left, "test") == judged(data, "test")
    dropped = len({listed[0], listed[1], *every_of_a_query})
    assert left.notes[-1] == (
        f"{dropped} pairs of train and dev are left out, for the {len(rows)} of {tmp_path / 'list.csv'}; "
        "1 are of test, which stays as it is"
    )


def test_ids_that_begin_or_end_with_white_space_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("id,text\n d1,a\nd1 ,b\nd1,c\n")
    (tmp_path / "pairs.csv").write_text("query,doc_id\nq, d1\nr,d1 \ns,d1\n")
    data = load_data(pairs=tmp_path / "pairs.csv", documents=tmp_path / "docs.csv")
    (tmp_path / "list.csv").write_text("query_id,doc_id\n q0, d1\nq1,d1 \n")
    assert judged(without_pairs(data, [tmp_path / "list.csv"]), "train") == {("q2", "d1")}


def test_a_list_that_leaves_out_nothing_or_everything_is_refused(
    make_beir: Callable[..., Path], tmp_path: Path
) -> None:
    data, path = load_data(make_beir()), tmp_path / "list.csv"
    for pairs, wrong in ((judged(data, "test"), "names no relevant pair"), (judged(data, "train"), "names every pair")):
        path.write_text("query_id,doc_id\n" + "".join(f"{q},{d}\n" for q, d in pairs))
        with pytest.raises(DataError, match=f"{path}: {wrong} of train"):
            without_pairs(data, [path])
    path.write_text("query_id,doc_id\n")
    assert without_pairs(data, [path]).notes[-1].startswith("0 pairs of train and dev")


def test_several_lists_are_left_out_together(make_beir: Callable[..., Path], tmp_path: Path) -> None:
    data = load_data(make_beir())
    pairs = sorted(judged(data, "train"))
    for name, own in (("first", pairs[:3]), ("second", pairs[2:4])):
        (tmp_path / name).with_suffix(".csv").write_text("query_id,doc_id\n" + "".join(f"{q},{d}\n" for q, d in own))
    left = without_pairs(data, [tmp_path / "first.csv", tmp_path / "second.csv"])
    assert judged(left, "train") == {*pairs[4:]}


@pytest.mark.parametrize("name", ["query", "document"])
def test_a_list_of_other_texts_is_refused(name: str, make_beir: Callable[..., Path], tmp_path: Path) -> None:
    """Ids that number the rows of a file are those of others once a row is gone."""
    data, path = load_data(make_beir()), tmp_path / "list.csv"
    query, document = min(judged(data, "train"))
    texts = {
        "query": data.queries.texts(data.queries.find_rows([query]))[0],
        "document": data.corpus.texts(data.corpus.find_rows([document]))[0][:9] + "…",
    }
    row = f"{query},{document},{texts['query']},{texts['document']}\n"
    path.write_text("query_id,doc_id,query,document\n" + row)
    without_pairs(data, [path])
    path.write_text("query_id,doc_id,query,document\n" + row.replace(texts[name], "another text"))
    with pytest.raises(DataError, match=rf"{name} '\w+' is 'another text' there and '.*, and so are 1 of 1 rows"):
        without_pairs(data, [path])
