"""Tables become data sets: ids and texts, grades and weights, splits and negatives, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData, load_data
from opera.data.tables.files import TableSource


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / name


def judged(data: RetrievalData, split: str = "train") -> list[tuple[str, str, int]]:
    qrels = data.split(split)
    queries = data.queries.ids(qrels.query_rows[qrels.query_index])
    return list(zip(queries, data.corpus.ids(qrels.doc_rows), qrels.grades.tolist(), strict=True))


def test_clicks_on_a_parquet_file_of_documents(tmp_path: Path) -> None:
    docs = pa.table(
        {"doc_id": [7, 8, 9], "heading": ["", "t", ""], "body": ["seven", "eight", "nine"], "url": [1, 2, 3]}
    )
    pq.write_table(docs, tmp_path / "docs.parquet")
    clicks = write(
        tmp_path, "clicks.csv", "q,doc,n,day\nfirst,7,2,mon\nsecond,8,1.5,tue\nfirst,7,3,wed\nfirst,8,0,thu\n"
    )
    columns = {"query": "q", "document": "doc", "weight": "n", "title": "heading"}
    data = load_data(pairs=clicks, documents=tmp_path / "docs.parquet", columns=columns)
    assert data.corpus.ids() == ["7", "8", "9"]
    assert data.corpus.texts() == ["seven", "t eight", "nine"]
    assert data.queries.texts() == ["first", "second"]
    assert judged(data) == [("q0", "7", 1), ("q0", "8", 0), ("q1", "8", 1)]
    assert data.split("train").weights is not None
    assert data.split("train").weights.tolist() == [5.0, 0.0, 1.5]  # type: ignore[union-attr]
    assert data.name == "clicks"
    assert data.notes == (
        "docs.parquet: read 'heading' as title, 'doc_id' as id, 'body' as text; not used: 'url'",
        "clicks.csv: read 'q' as query, 'doc' as document, 'n' as weight; not used: 'day'",
        "train: merged 1 repeated pairs (weights: the sum)",
        "train: 1 pairs of weight 0 are not relevant",
    )


def test_the_source_leads_back_to_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a & b.csv", "an id,words\n1,one\n")
    write(tmp_path, "p.csv", "query,document\nx,1\n")
    data = load_data(pairs={"test": "p.csv"}, documents="a & b.csv", columns={"id": "an id", "text": "words"})
    assert data.source == ("tables:documents=a%20%26%20b.csv&pairs.test=p.csv&columns.id=an%20id&columns.text=words")
    assert load_data(data.source).fingerprint == data.fingerprint
    assert list(data.splits) == ["test"]


@pytest.mark.parametrize(
    "header",
    ["anchor,positive", "query,passage", "Question,Answer", "sentence1,sentence2", "q,a", "query text,document-text"],
)
def test_two_columns_of_texts_are_recognised(tmp_path: Path, header: str) -> None:
    path = write(tmp_path, "pairs.csv", f'{header}\none,a\n"two, or\nthree",b\none,b\nfour,a\n')
    data = load_data(path)
    assert data.queries.texts() == ["one", "two, or\nthree", "four"]
    assert data.corpus.texts() == ["a", "b"]
    assert judged(data) == [("q0", "d0", 1), ("q0", "d1", 1), ("q1", "d1", 1), ("q2", "d0", 1)]
    first, second = header.split(",")
    assert data.notes == (f"pairs.csv: read {first!r} as query, {second!r} as document",)


def test_columns_are_found_in_any_case_and_with_spaces_around_them(tmp_path: Path) -> None:
    path = write(tmp_path, "pairs.csv", 'Nr, Customer Question ,"Agent\nReply",agent reply\n1,one,a,b\n')
    data = load_data(path, columns="query=customer question,document=agent reply")
    assert (data.queries.texts(), data.corpus.texts()) == (["one"], ["b"])
    with pytest.raises(DataError, match=r"^--columns document=AGENT REPLY: .* has no such column"):  # two are alike
        load_data(path, columns="query=Customer Question,document=AGENT REPLY")


def test_texts_that_differ_in_white_space_alone_are_one(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", 'query,document,title\na,x  y,t\n a,"x\r\ny",t\nb,x y\u00a0,t\nb,xy,t\nb,x y,\n')
    data = load_data(path)
    assert data.queries.texts() == ["a", "b"]
    assert data.corpus.texts() == ["t x  y", "t xy", "x y"]
    assert judged(data) == [("q0", "d0", 1), ("q1", "d0", 1), ("q1", "d1", 1), ("q1", "d2", 1)]
    assert data.notes[-3:] == (
        "2 documents differ from others in white space alone, and are one with them",
        "1 queries differ from others in white space alone, and are one with them",
        "train: merged 1 repeated pairs",
    )


def test_ids_beside_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "qid,query,doc_id,document,title\n007,a,d7,x,t\n7,a,d7,x,t\n")
    data = load_data(path)
    assert data.queries.ids() == ["007", "7"]
    assert data.corpus.table.to_pylist() == [{"id": "d7", "title": "t", "text": "x"}]
    other = write(tmp_path, "o.csv", "query,doc_id,document\na,d7,x\nb,d8,x\nc,d7,y\n")
    with pytest.raises(DataError, match=r"o\.csv:4: document 'd7' has another text than before; give it its own id$"):
        load_data(other)


def test_ids_that_only_some_texts_have_are_not_used(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "query,doc_id,document,title,negative\na,d7,x,,y\nb,d8,y,t,x\n")
    data = load_data(path)
    assert data.corpus.table.to_pylist() == [
        {"id": "d0", "title": "", "text": "x"},
        {"id": "d1", "title": "t", "text": "y"},
        {"id": "d2", "title": "", "text": "y"},
    ]
    assert data.notes[0].endswith("; not used: 'doc_id'")
    named = write(tmp_path, "named.csv", "qid,query,document\n7,a,x\n")
    both = load_data(pairs=[named, write(tmp_path, "plain.csv", "query,document\nb,x\n")])
    assert both.queries.ids() == ["q0", "q1"]


def test_pairs_that_hold_the_texts_of_a_wider_corpus(tmp_path: Path) -> None:
    docs = write(tmp_path, "d.csv", "id,text\n1,one\n2,two\n3,three\n")
    data = load_data(pairs=write(tmp_path, "p.csv", "query,passage\na,three\nb,one\n"), documents=docs)
    assert judged(data) == [("q0", "3", 1), ("q1", "1", 1)]
    assert data.notes[-1] == "the pairs hold the texts of documents, not their ids"
    with pytest.raises(DataError, match=r"p\.csv:3: the document is no text in the table of documents; add it there"):
        load_data(pairs=write(tmp_path, "p.csv", "query,passage\na,three\nb,four\n"), documents=docs)


def test_grades(tmp_path: Path) -> None:
    data = load_data(write(tmp_path, "p.csv", "query,document,score\na,x,2.0\na,y,0.0\na,x,1.0\n"))
    assert judged(data) == [("q0", "d0", 2), ("q0", "d1", 0)]
    assert data.split("train").weights is None
    assert data.notes[-1] == "train: merged 1 repeated pairs (grades: the highest)"


def test_grades_with_fractions_are_weights(tmp_path: Path) -> None:
    data = load_data(write(tmp_path, "p.csv", "query,document,score\na,x,0.5\na,y,0\nb,y,-0.1\nb,x,1\n"))
    assert judged(data) == [("q0", "d0", 1), ("q0", "d1", 0), ("q1", "d0", 1), ("q1", "d1", 0)]
    assert data.split("train").weights is not None
    assert data.split("train").weights.tolist() == [0.5, 0.0, 1.0, 0.0]  # type: ignore[union-attr]
    assert data.notes[-1] == "train: grades with fractions are read as weights: those above 0, with grade 1"


def test_fractions_concern_their_split_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "query,document,score,split\na,x,0.5,train\nb,y,3,test\nb,x,1,test\n")
    data = load_data(path)
    assert judged(data) == [("q0", "d0", 1)]
    assert judged(data, "test") == [("q1", "d0", 1), ("q1", "d1", 3)]
    assert data.split("test").weights is None


def test_fractions_beside_weights_say_what_is_relevant(tmp_path: Path) -> None:
    data = load_data(write(tmp_path, "p.csv", "query,document,score,clicks\na,x,0.5,7\na,y,0,3\nb,x,2,0\n"))
    assert judged(data) == [("q0", "d0", 1), ("q0", "d1", 0), ("q1", "d0", 0)]
    assert data.split("train").weights_or_ones().tolist() == [7, 3, 0]
    assert data.notes[-2:] == (
        "train: grades with fractions say only which pairs are relevant: those above 0, with grade 1",
        "train: 1 pairs of weight 0 are not relevant",
    )


def test_numbers_that_a_file_lacks_are_1(tmp_path: Path) -> None:
    clicks = write(tmp_path, "clicks.csv", "query,document,clicks\na,x,5\nb,x,2\n")
    plain = write(tmp_path, "plain.csv", "query,document\nc,y\n")
    data = load_data(pairs=[clicks, plain, f"test={plain}"])
    assert data.split("train").weights_or_ones().tolist() == [5, 2, 1]
    assert data.split("test").weights is None
    assert data.notes[-1] == "train: 1 of 3 pairs have no weight in their file: it is 1"


def test_lists_of_scores_are_not_used(tmp_path: Path) -> None:
    lines = '{"query":"a","positive":["p","q"],"score":[0.9,0.1],"negative":["n"]}\n'
    data = load_data(write(tmp_path, "p.jsonl", lines))
    assert judged(data) == [("q0", "d0", 1), ("q0", "d1", 1)]
    assert data.notes[-1] == "lists in 'score' are not used: a row has one grade"


def test_a_column_of_splits(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "query,document,split\na,x,train\nb,y,Validation\nc,z,test\nd,x,val\n")
    data = load_data(path)
    assert {split: len(qrels.doc_rows) for split, qrels in data.splits.items()} == {"train": 1, "dev": 2, "test": 1}


def test_negatives_in_columns_and_lists(tmp_path: Path) -> None:
    data = load_data(
        write(tmp_path, "p.csv", "query,positive,negative_1,negative_2,split\na,p,n,m,train\nb,q,n,p,test\n")
    )
    assert data.corpus.texts() == ["p", "q", "n", "m"]
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 2, 2]
    assert data.given_negatives.doc_rows.tolist() == [2, 3]
    lists = '{"query":"a","positive":["p","q"],"negatives":["n","p"]}\n'
    listed = load_data(write(tmp_path, "p.jsonl", lists))
    assert judged(listed) == [("q0", "d0", 1), ("q0", "d1", 1)]
    assert listed.given_negatives is not None
    assert listed.given_negatives.doc_rows.tolist() == [2]


@pytest.mark.parametrize(
    "lines",
    [
        "1 0 7 1.0\n2 0 8 2",
        "1 0 7 +1\n2 0 8 2e0",
        "1 1st 7 1\n2 second 8 2.",
        "1\t1st\t7\t1\n2\tQ0\t8\t2",
        "# judged by hand\n1 0 7 1\n#\n# in 2024, twice\n2 0 8 2\n## end ##",
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".qrels", ".trec", ".tsv", ""])
def test_forms_of_trec_qrels(lines: str, suffix: str, tmp_path: Path) -> None:
    docs = write(tmp_path, "docs.csv", "id,text\n7,a\n8,b\n")
    queries = write(tmp_path, "queries.csv", "id,text\n1,c\n2,d\n")
    data = load_data(pairs=write(tmp_path, f"qrels{suffix}", lines), documents=docs, queries=queries)
    assert judged(data, "train") == [("1", "7", 1), ("2", "8", 2)]


def test_a_table_of_four_words_is_not_trec_qrels(tmp_path: Path) -> None:
    path = write(tmp_path, "p.tsv", "red tea\tsteep 4\n")
    data = load_data(pairs=path, columns="query=1,document=2")
    assert data.queries.texts() == ["red tea"]
    with pytest.raises(DataError, match=r"--columns query=1,document=2$"):
        load_data(path)


def test_ms_marco_style(tmp_path: Path) -> None:
    write(tmp_path, "collection.tsv", '7\tthe "first" passage\n8\t"another" one\n')
    write(tmp_path, "queries.tsv", "1\twhat is it\n2\tand then\n")
    train = write(tmp_path, "qrels.train.txt", "1 0 7 1\n2\t0\t8\t2\n")
    test = write(tmp_path, "qrels.test.tsv", "1 Q0 8 0\n1 Q0 7 1\n")
    texts = {"documents": tmp_path / "collection.tsv", "queries": tmp_path / "queries.tsv"}
    data = load_data(pairs={"train": train, "test": test}, **texts)
    assert judged(data) == [("1", "7", 1), ("2", "8", 2)]
    assert judged(data, "test") == [("1", "7", 1), ("1", "8", 0)]
    assert data.corpus.texts() == ['the "first" passage', '"another" one']
    assert data.notes[0] == "collection.tsv: has no header; its columns are read as id, text"
    assert data.notes[2:] == tuple(
        f"{path.name}: read as TREC's qrels: query, 0, document, grade" for path in (train, test)
    )
    run = write(tmp_path, "run.txt", "1 Q0 7 1 3.2 bm25\n")
    with pytest.raises(
        DataError, match=r"run\.txt: is a ranking \(TREC's run: .*\), not judgements; pass a qrels file"
    ):
        load_data(pairs=run, **texts)


def test_files_of_different_columns_are_one_data_set(tmp_path: Path) -> None:
    clicks = write(tmp_path, "clicks.csv", "q,doc,n\na,1,2\n")
    judgements = write(tmp_path, "judged.csv", "query,document_id,grade\nb,2,3\na,2,1\n")
    docs = write(tmp_path, "d.csv", "id,text\n1,one\n2,two\n")
    columns = {"weight": "n", "document": "doc"}
    data = load_data(pairs={"train": clicks, "test": judgements}, documents=docs, columns=columns)
    assert judged(data) == [("q0", "1", 1)]
    assert judged(data, "test") == [("q0", "2", 1), ("q1", "2", 3)]


def test_the_words_of_a_command_name_no_folder() -> None:
    tables = TableSource.of({"train": "/home/me/clicks.csv", "test": "t.csv"}, "/home/me/docs", columns="query=q")
    words = ["--documents", "docs", "--pairs", "train=clicks.csv", "--pairs", "test=t.csv", "--columns", "query=q"]
    assert tables.options() == words
    assert "/home" not in str(tables.without_folders())


def test_titles_and_texts_are_compared_one_by_one(tmp_path: Path) -> None:
    rows = [("a\0b", "c"), ("a", "b\0c"), ("", "a\0b\0c"), ("a", "bc"), ("ab", "c"), ("", "1 abc"), ("", "bc")]
    path = tmp_path / "p.parquet"
    titles, texts = zip(*rows, rows[0], strict=True)
    pq.write_table(pa.table({"query": ["q"] * 8, "title": titles, "document": texts}), path)
    assert [(row["title"], row["text"]) for row in load_data(path).corpus.table.to_pylist()] == rows


def test_bad_rows_of_beirs_and_flag_embeddings_files_are_left_out_where_they_are_given_as_tables(
    make_beir: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_beir()
    whole = load_data(folder)
    with (folder / "corpus.jsonl").open("a") as corpus, (folder / "qrels" / "train.tsv").open("a") as qrels:
        corpus.write('{"_id": \n')
        qrels.write("nobody\tnothing\t1\n")
    texts = {"documents": folder / "corpus.jsonl", "queries": folder / "queries.jsonl"}
    pairs = [folder / "qrels" / "train.tsv", folder / "qrels" / "test.tsv"]
    data = load_data(pairs=pairs, skip_bad_rows=True, **texts)
    assert data.counts() == whole.counts()
    assert data.skipped is not None
    assert data.skipped["file"].to_pylist() == ["corpus.jsonl", "train.tsv"]
    lines = [{"query": "a", "pos": ["b"], "neg": ["c"], "pos_scores": [1]}, {"query": " ", "pos": ["b"], "neg": []}]
    path = write(tmp_path, "t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    data = load_data(pairs=path, skip_bad_rows=True)
    assert data.counts() == {"documents": 2, "train_queries": 1, "train_pairs": 1}
    assert data.given_negatives is not None
