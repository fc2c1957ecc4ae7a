"""What small inputs of every format are loaded as: ``python tests/data/golden.py`` writes ``golden.json`` anew.

A case is a dictionary of files, and what is given to ``load_data``; paths are relative to the folder of the files.
"""

import gzip
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import InputError
from opera.data import RetrievalData, load_data

GOLDEN = Path(__file__).with_suffix(".json")
Content = str | bytes | list[dict[str, Any]] | pa.Table
Case = tuple[dict[str, Content], Any]


def parquet(**columns: Any) -> bytes:
    """A Parquet file of columns."""
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def arrow(stream: bool = False, **columns: Any) -> bytes:
    """An Arrow file, or a stream, of columns."""
    file, table = io.BytesIO(), pa.table(columns)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def zst(content: bytes) -> bytes:
    """Compress by Zstandard."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


QA = {"question": ["one", "two", "one"], "answer": ["a", "b", "b"]}
CSV = "question,answer\none,a\ntwo,b\none,b\n"
LINES = [dict(zip(QA, row, strict=True)) for row in zip(*QA.values(), strict=True)]
DOCS = "id,title,text\n007,,bond\n8,Eight,of it\n9,,\n"
QUERIES = "id,text\n1,who\n2,what\n"
BY_ID = {"documents": "docs.csv", "queries": "queries.csv", "pairs": "p.csv"}
TEXTS: dict[str, Content] = {"docs.csv": DOCS, "queries.csv": QUERIES}
BEIR_TEXTS: dict[str, Content] = {
    "b/corpus.jsonl": [
        {"_id": "d1", "title": "T", "text": "one  text", "metadata": {"a": [None]}},
        {"_id": 2, "text": "one text", "title": None},
        {"_id": "d3", "title": " ", "text": ""},
        {"_id": "d4", "text": None},
    ],
    "b/queries.jsonl": '{"_id": "q1", "text": "first"}\r\n\n{"_id": "q2", "text": "Sec\\u00f6nd"}\r\n'
    '{"_id": "q3", "text": " ", "metadata": 1}',
}
HEADER = "query-id\tcorpus-id\tscore\n"
LINE = {"query": "q one", "pos": ["a", "b"], "neg": ["c", "a", ""], "pos_scores": [9, None], "neg_scores": [-0.5, 2, 1]}
PASSAGES = {
    "query_id": "17",
    "query": "one",
    "positive_passages": [{"docid": "b", "title": "of b", "text": "a text"}],
    "negative_passages": [{"docid": 4, "text": "four"}, {"docid": "5", "title": "", "text": "a  text"}],
    "answers": ["x"],
}


def csv_case(text: str, **how: Any) -> Case:
    return {"p.csv": text}, {"source": "p.csv", **how}


def skipping(text: str) -> Case:
    return csv_case(text, skip_bad_rows=True)


def json_case(*rows: dict[str, Any], **how: Any) -> Case:
    return {"p.jsonl": list(rows)}, {"source": "p.jsonl", **how}


PAIR = {"query": "a", "document": "b"}
CASES: dict[str, Case] = {
    "csv": csv_case(CSV),
    "csv of Windows": ({"p.csv": b"\xef\xbb\xbf" + CSV.encode().replace(b"\n", b"\r\n")}, {"source": "p.csv"}),
    "csv of old Macs": ({"p.csv": CSV.encode().replace(b"\n", b"\r")}, {"source": "p.csv"}),
    "csv of mixed line breaks": csv_case("query,document\r\na,b\nc,d\r\n\r\ne,f"),
    "semicolons": csv_case(CSV.replace(",", ";")),
    "semicolons after an empty line": csv_case("\n" + CSV.replace(",", ";")),
    "vertical bars": csv_case(CSV.replace(",", "|")),
    "tabs in csv": csv_case(CSV.replace(",", "\t")),
    "quotes": csv_case('query,document\n"two, or\nthree","say ""it"""\na "b" c,\'x\'\n\n"",""\n', skip_bad_rows=True),
    "spaces beside quotes": csv_case(
        'query,document\nq one,d one\nq two, "d two"\n "q two",d two\nq two,said "two" \n', skip_bad_rows=True
    ),
    "blank lines": csv_case("\n\nquery,document\n\na,b\n   \n\nc,d\n\n", skip_bad_rows=True),
    "stated delimiter": csv_case('\ufeff"sep=;"\r\nquery;document\r\na, b | c;d\r\n'),
    "stated delimiter below empty lines": csv_case("\n\nsep=;\nquery;document\na;b\n"),
    "stated tab": csv_case("SEP=\\t\nquery\tdocument\na;b;c\td\n"),
    "stated tab in utf-16": (
        {"p.csv": "sep=\t\nquery\tdocument\na;b;c\td\n".encode("utf-16")}, {"source": "p.csv", "encoding": "utf-16"}
    ),
    "rows of separators": csv_case(";;\nquery;document;grade\n;;\na;b;1\n; ;\"\"\n;;;;\nc;d;0\n;;\n"),
    "empty cells at the end": csv_case("query;document;;\na;b\nc;d;;;;\ne;f;;\n"),
    "a text in a column without a name": csv_case("query;document;;\na;b\ne;f;;note\n"),
    "labels of a spreadsheet": csv_case("query,document,label\na,b,TRUE\nc,d,False\ne,f,1\n"),
    "gz": ({"p.csv.gz": gzip.compress(CSV.encode(), mtime=0)}, {"source": "p.csv.gz"}),
    "zst": ({"p.csv.zst": zst(CSV.encode())}, {"source": "p.csv.zst"}),
    "jsonl.zst": ({"p.jsonl.zst": zst(b'{"query": "a", "document": "b"}\n')}, {"source": "p.jsonl.zst"}),
    "tsv": ({"p.tsv": CSV.replace(",", "\t").replace("a\n", '"a" b\n')}, {"source": "p.tsv"}),
    "tsv by number": ({"p.tsv": "what?\tthat\nwho?\the\n"}, {"source": "p.tsv", "columns": "query=1,document=2"}),
    "csv by number": csv_case("what?,that\nwho?,he\n", columns={"query": "1", "document": "2"}),
    "jsonl": ({"p.jsonl": LINES}, {"source": "p.jsonl"}),
    "ndjson": ({"p.ndjson": LINES}, {"source": "p.ndjson"}),
    "parquet": ({"p.parquet": parquet(**QA)}, {"source": "p.parquet"}),
    "feather": ({"p.feather": arrow(**QA)}, {"source": "p.feather"}),
    "arrow stream": ({"p.arrow": arrow(stream=True, **QA)}, {"source": "p.arrow"}),
    "cp1252": ({"p.csv": "query,document\na,caf\xe9\n".encode("cp1252")}, {"source": "p.csv", "encoding": "cp1252"}),
    "utf-16": ({"p.csv": CSV.encode("utf-16")}, {"source": "p.csv", "encoding": "utf-16"}),
    "utf-8 all the same": ({"p.csv": "query,document\na,caf\xe9\n"}, {"source": "p.csv", "encoding": "cp1252"}),
    "not utf-8": ({"p.csv": b"query,document\na,caf\xe9\nb,c\n"}, {"source": "p.csv", "skip_bad_rows": True}),
    "folder": ({"t/train-0.csv": CSV, "t/test.csv": CSV, "t/my.csv": CSV, "t/.x.csv": "spoilt", "t/README.md": "about"},
               {"source": "t"}),
    "folders": ({"t/train/p.csv": CSV, "t/val/p.jsonl": LINES}, {"source": "t"}),
    "several files": ({"train.csv": CSV, "test.csv": CSV, "clicks.csv": CSV},
                      {"pairs": ["train.csv", "test.csv", "clicks.csv"]}),
    "named split": ({"p.csv": CSV}, {"pairs": {"valid": "p.csv"}}),
    "recognised names": csv_case("Search-Query,passage text,Url\na,b,c\n"),
    "columns": csv_case('Nr, Customer Question ,"Agent\nReply"\n1,one,a\n',
                        columns="query=customer question,document=agent reply"),
    "a beside q": csv_case("q,a\nx,y\n"),
    "white space": csv_case('query,document,title\na,x  y,t\n a,"x\r\ny",t\nb,x y\u00a0,t\nb,xy,t\nb,x y,\n'),
    "ids": csv_case("qid,query,doc_id,document,title\n007,a,d7,x,t\n7,a,d7,x,t\n"),
    "ids of some": csv_case("query,doc_id,document,title,negative\na,d7,x,,y\nb,d8,y,t,x\n"),
    "ids in one of two files": ({"a.csv": "qid,query,document\n7,a,x\n", "b.csv": "query,document\nb,x\n"},
                                {"pairs": ["a.csv", "b.csv"]}),
    "made-up ids that are taken": ({"f.jsonl": [{"query": "q", "pos": ["d1"]}], "corpus.jsonl": [
        {"id": "d1", "text": "x"}], "test_queries.jsonl": [{"id": "q1", "text": "y"}],
        "test_qrels.jsonl": [{"qid": "q1", "docid": "d1"}]}, {"source": "."}),
    "by id": ({**TEXTS, "p.csv": "query_id,doc_id,grade\n1,007,2\n2,8,0\n2,007,1\n"}, BY_ID),
    "by text": ({"docs.csv": "id,text\n1,one\n2,two  x\n3,two x\n", "p.csv": "query,passage\na,two x\nb,one\n"},
                {"documents": "docs.csv", "pairs": "p.csv"}),
    "clicks": ({"docs.parquet": parquet(doc_id=[7, 8, 9], heading=["", "t", ""], body=["seven", "eight", "nine"],
                                        url=[1, 2, 3]),
                "clicks.csv": "q,doc,n,day\nfirst,7,2,mon\nsecond,8,1.5,tue\nfirst,7,3,wed\nfirst,8,0,thu\n"},
               {"pairs": "clicks.csv", "documents": "docs.parquet",
                "columns": {"query": "q", "document": "doc", "weight": "n", "title": "heading"}}),
    "grades": csv_case("query,document,score\na,x,2.0\na,y,0.0\na,x,1.0\nb,y,-1\n"),
    "fractions": csv_case("query,document,score\na,x,0.5\na,y,0\nb,y,-0.1\nb,x,1\n"),
    "fractions of one split": csv_case("query,document,score,split\na,x,0.5,train\nb,y,3,test\nb,x,1,test\n"),
    "fractions beside weights": csv_case("query,document,score,clicks\na,x,0.5,7\na,y,0,3\nb,x,2,0\n"),
    "large fractions": csv_case("query,document,score\na,x,0.5\na,y,5000\n"),
    "weights": csv_case("query,document,weight\na,x,3\na,x,4.25\nb,x,0\n"),
    "numbers a file lacks": ({"c.csv": "query,document,clicks\na,x,5\nb,x,2\n", "p.csv": "query,document\nc,y\n"},
                             {"pairs": ["c.csv", "p.csv", "test=p.csv"]}),
    "forms of numbers": csv_case("query,document,score\na,x, 1e0\na,y,+1\na,z,2.\na,w,.5e1\n"),
    "splits": csv_case("query,document,split\na,x,train\nb,y,Validation\nc,z, test\nd,x,validation \n"),
    "negatives": csv_case("query,positive,negative_1,negative_2,split\na,p,n,m,train\nb,q,n,p,test\nc,p, ,n,train\n"),
    "lists": json_case({"query": "a", "positive": ["p", "q"], "negatives": ["n", "p", None, ""]},
                       {"query": "b", "positive": "q", "negatives": None}),
    "lists of scores": json_case({"query": "a", "positive": ["p", "q"], "score": [0.9, 0.1], "negative": ["n"]}),
    "lists in parquet": ({"p.parquet": parquet(query=["a", "b"], document=[["x", "y"], ["x"]], label=[1, 0],
                                               negative=[["z"], None])}, {"source": "p.parquet"}),
    "numbers as texts": json_case({"query": 7, "document": 7.0}, {"query": "7", "document": "7"}),
    "columns that come late": json_case(*[PAIR] * 3, {**PAIR, "title": "named", "negatives": ["c"]}),
    "true and false": json_case({**PAIR, "label": True}, {**PAIR, "document": "e", "label": False}),
    "kinds in parquet": ({"p.parquet": parquet(
        query=pa.array(["a", "b"]).dictionary_encode(), document=pa.array([1, 2], pa.uint8()),
        grade=pa.array([1, 2], pa.float32()), weight=pa.array(["1", "2.5"], pa.string_view()))},
        {"source": "p.parquet"}),
    "ids of floats": ({"d.parquet": parquet(id=pa.array([7, 8], pa.float32()), text=["x", None]),
                       "p.csv": "query,doc_id\na,7\n"}, {"documents": "d.parquet", "pairs": "p.csv"}),
    "qrels": ({**TEXTS, "p.txt": "1 0 007 1\n2\tQ0\t8 2e0\n1 1st 8 0\n"}, {**BY_ID, "pairs": "p.txt"}),
    "MS MARCO": ({"c.tsv": '7\tthe "first" one\n8\t"another\n', "q.tsv": "1\twhat\n2\tthen\n",
                  "qrels.train.txt": "1 0 7 1\n2\t0\t8\t2\n", "qrels.test.tsv": "1 Q0 8 0\n1 Q0 7 1\n"},
                 {"documents": "c.tsv", "queries": "q.tsv",
                  "pairs": {"train": "qrels.train.txt", "test": "qrels.test.tsv"}}),
    "MS MARCO's documents": ({"c.tsv": "7\thttp\tTitle\tbody\n", "p.csv": "query,doc_id\na,7\n"},
                             {"documents": "c.tsv", "pairs": "p.csv"}),
    "different columns": ({"c.csv": "q,doc,n\na,1,2\n", "j.csv": "query,document_id,grade\nb,2,3\na,2,1\n",
                           "d.csv": "id,text\n1,one\n2,two\n"},
                          {"pairs": {"train": "c.csv", "test": "j.csv"}, "documents": "d.csv",
                           "columns": {"weight": "n", "document": "doc"}}),
    "skipped": skipping('query,document,clicks\na,b,1\nc,"d,2\ne,f,3"\n,g,1\nh,i,high\nj,k,-1\nl,m\nn,o,2\n'),
    "skipped below blank rows": skipping('query,document\na,b\n,\n , \n"",""\n\nq9,\n'),
    "skipped qrels below blank lines": (
        {**TEXTS, "p.txt": "1 0 007 1\n \n\n2 0 9\n\t\n2 0 unknown 1\n1 0 8 1\n"},
        {**BY_ID, "pairs": "p.txt", "skip_bad_rows": True},
    ),
    "skipped below a quotation mark beside a space": skipping('query,document\na,b\nx, "m\nn",z\nc, "d, e"\nq9,\n'),
    "a last column without a name": csv_case('query,document,\n"m\nn",x,\ny,"v, w"\n'),
    "skipped long": skipping('query,document,clicks\n\na,"b\n\nc",1\n,d,1\ne,"f\r\n""g""",high\nh,i,2\n'),
    "a pattern": ({"p[1].csv": CSV, "p1.csv": "query,document\nother,file\n"}, {"source": "p[1].csv"}),
    "skipped json": ({"p.jsonl": '{"query": "a", "document": "b"}\n{oops\n[1]\n{"query": {"a": 1}, "document": "c"}\n'
                      '{"query": "d", "document": ""}\n'}, {"source": "p.jsonl", "skip_bad_rows": True}),
    "skipped ids": ({"docs.csv": "id,text\n1,a\n1,b\n,c\n3,\n4,d\n", "p.csv": "query,doc_id\nx,1\ny,2\nz,3\nw,4\n"},
                    {"pairs": "p.csv", "documents": "docs.csv", "skip_bad_rows": True}),
    "skipped clash": skipping("query,doc_id,document\na,1,x\nb,1,y\nc,2,z\n"),
    "skipped parquet": ({"p.parquet": parquet(query=["a", ""], document=["x", "y"], url=[1, None])},
                        {"source": "p.parquet", "skip_bad_rows": True}),
    "nothing left": skipping("query,document\n,b\na,\n"),
    "all rules": csv_case("query,document,score\n,x,1\na,,1\nb,y,high\nc,z,5000\nd,w,\ne,v,1\n"),
    "beir": ({**BEIR_TEXTS, "b/qrels/train.tsv": f"{HEADER}q1\td1\t1\nq1\t2\t2\nq2\td1\t0\nq1\td1\t1\n",
              "b/qrels/Test.tsv": f"{HEADER}q2\t2\t1\r\n\r\n", "b/qrels/val.tsv": f"\ufeff{HEADER}q2\td1\t-1\n",
              "b/qrels/._x.tsv": "x"}, {"source": "b"}),
    "beir with empty texts": ({**BEIR_TEXTS, "b/qrels/train.tsv": f"{HEADER}q1\td1\t1\nq1\td4\t1\nq3\t2\t1\n"},
                              {"source": "b"}),
    "beir with two grades": ({**BEIR_TEXTS, "b/qrels/train.tsv": f"{HEADER}q1\td1\t1\nq1\td1\t2\n"}, {"source": "b"}),
    "beir with options": ({**BEIR_TEXTS, "b/qrels/train.tsv": "query-id\tcorpus-id\tvotes\nq1\td1\t3\nq9\td1\t1\n"},
                          {"source": "b", "skip_bad_rows": True, "columns": {"grade": "votes"}}),
    "beir by its files": ({**BEIR_TEXTS, "b/qrels/train.tsv": f"{HEADER}q1\td1\t1\nq9\td1\t2\nq1\td9\t2\n"},
                          {"documents": "b/corpus.jsonl", "queries": "b/queries.jsonl", "pairs": "b/qrels/train.tsv",
                           "skip_bad_rows": True}),
    "FlagEmbedding": ({"f.jsonl": [LINE, {"query": "q two", "pos": ["c"], "type": "x", "id": 3},
                                   {"query": "q  one", "pos": ["d"], "neg": ["e"]}]}, {"source": "f.jsonl"}),
    "FlagEmbedding's nulls": ({"f.jsonl": '\ufeff{"query": "q", "pos": ["a"], "neg": null, "pos_scores": null}\n'},
                              {"source": "f.jsonl"}),
    "a prompt": ({"f.jsonl": [{**LINE, "prompt": "find: "}] * 2}, {"source": "f.jsonl"}),
    "prompts": ({"f.jsonl": [{**LINE, "prompt": "find: "}, LINE]}, {"source": "f.jsonl"}),
    "FlagEmbedding as a table": ({"f.jsonl": [LINE]}, {"pairs": "f.jsonl"}),
    "FlagEmbedding's folder": ({"f/nq_train.jsonl": [{"query": "one", "pos": ["a"], "neg": ["b"]}],
                                "f/other.jsonl": [{"query": "two", "pos": ["b"]}],
                                "f/eval.jsonl": [{"query": "three", "pos": ["c"]}, {"query": "one", "pos": ["c"]}],
                                "f/facts.jsonl": [{"author": "me"}], "f/.h.jsonl": "{"}, {"source": "f"}),
    "evaluation files": ({
        "f/train.jsonl": [{"query": "seen", "pos": ["of one a text"], "neg": ["new"]}],
        "f/corpus.jsonl": [{"id": "x", "title": "of one", "text": "a text"}, {"id": 7, "text": "seven"}],
        "f/test_queries.jsonl": [{"id": "t", "text": "asked"}, {"id": "u", "text": "seen"}],
        "f/test_qrels.jsonl": [{"qid": "t", "docid": 7, "relevance": 2}, {"qid": "u", "docid": "x"}]}, {"source": "f"}),
    "Tevatron": ({"f.jsonl": [PASSAGES, {**PASSAGES, "query_id": "18", "query": "two", "positive_passages": [
        {"docid": "4", "text": "four"}, {"docid": "b"}]}]}, {"source": "f.jsonl"}),
    "Tevatron by id": ({
        "f/corpus.jsonl": [{"docid": "x", "text": "ex"}, {"docid": "y", "title": "Y", "text": "why"}],
        "f/train.jsonl": [{"query_id": "1", "query_text": "one", "positive_document_ids": ["y"],
                           "negative_document_ids": ["x"]}], "f/dev.jsonl": [PASSAGES]}, {"source": "f"}),
    "DPR": ({"f.json": '[\n  {"question": "one", "answers": ["x"], "positive_ctxs": [{"title": "T", "text": "a } [",\n'
             '"passage_id": "7"}],\n"negative_ctxs": [], "hard_negative_ctxs": [{"psg_id": 8, "text": "b"}]},\n'
             '{"question": "two", "positive_ctxs": [], "negative_ctxs": [{"passage_id": "9", "text": "c"}]}'
             ', {"question": "three", "positive_ctxs": [{"passage_id": "8", "text": "b"}], "negative_ctxs": '
             '[{"passage_id": "9", "text": "c"}]}]'}, {"source": "f.json"}),
    "DPR's folder": ({
        "f/biencoder-train.jsonl": [{"question": "one", "positive_ctxs": [{"title": "T", "text": "a"}],
                                     "hard_negative_ctxs": [{"title": "", "text": "b"}]}],
        "f/biencoder-dev.json": '[{"question": "two", "positive_ctxs": [{"title": "", "text": "b"}]}]',
        "f/about.json": '{"author": "me"}'}, {"source": "f"}),
    "hub of pairs": ({"h/train.jsonl": [{"anchor": "a", "positive": "p", "negative": "n"},
                                        {"anchor": " ", "positive": "p", "negative": "m"},
                                        {"anchor": "b", "positive": "", "negative": "n"},
                                        {"anchor": "b", "positive": "n", "negative": " "}],
                      "h/test.jsonl": [{"anchor": "c", "positive": "p", "negative": "z"}]}, {"source": "hf:h"}),
    "hub of lists": ({"h/train.jsonl": [{"query": "a", "pos": ["x", "", "y"], "neg": ["z"], "prompt": "p"},
                                        {"query": "", "pos": ["w"], "neg": []}]}, {"source": "hf:h"}),
    "irds": ({}, {"source": "irds:beir/fiqa"}),
    "irds of one split": ({}, {"source": "irds:antique/train"}),
    "example": ({}, {"source": "example:faq"}),
    "aligned lists": ({}, (["one", "two", "one"], ["a", "b", "c"], None)),
    "texts by id": ({}, ({"q1": "one", 2: "two"}, ["a", "b"], [("q1", 0, 2), (2, 1, 0)])),
    "dictionaries": ({}, (None, None, [{"query": "a", "document": ["b", "c"], "grade": "2"}])),
    "an array": ({}, (["one"], ["a", "b"], np.array([[0, 1, 2]]))),
    "a table in memory": ({}, (None, {"id": [0, 1], "text": ["a", "b"]}, pa.table(
        {"query": ["x", "y"], "doc_id": [1, 0], "clicks": [3, 1.5]}))),
}  # fmt: skip


@contextmanager
def put(files: dict[str, Content]) -> Iterator[Path]:
    """A folder with the files, which is the current one."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, list):
                content = "".join(json.dumps(row) + "\n" for row in content)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def dump(data: RetrievalData) -> dict[str, Any]:
    """All that is loaded but the fingerprint."""
    qrels = {
        name: [
            split.query_rows.tolist(), split.offsets.tolist(), split.doc_rows.tolist(), split.grades.tolist(),
            None if split.weights is None else split.weights.tolist(),
        ]
        for name, split in data.splits.items()
    }  # fmt: skip
    negatives, teacher = data.given_negatives, data.teacher
    return {
        "name": data.name,
        "corpus": [list(row.values()) for row in data.corpus.table.to_pylist()],
        "queries": [list(row.values()) for row in data.queries.table.to_pylist()],
        "splits": qrels,
        "negatives": negatives and [negatives.offsets.tolist(), negatives.doc_rows.tolist()],
        "teacher": teacher and [teacher.query_rows.tolist(), teacher.doc_rows.tolist(), teacher.scores.tolist()],
        "prompt": data.query_prompt,
        "notes": list(data.notes),
        "skipped": data.skipped and [list(row.values()) for row in data.skipped.to_pylist()],
    }


def outcome(name: str, *, again: bool = True) -> dict[str, Any]:
    """What a case is loaded as, or the error's lines; ``again`` loads it once more, from the cache."""
    files, given = CASES[name]
    with put(files) as folder:
        try:
            memory = dict(zip(("queries", "documents", "pairs"), given, strict=False))
            arguments = memory if isinstance(given, tuple) else given
            data = load_data(**arguments)
            loaded = dump(data)
            assert not again or dump(load_data(**arguments)) == loaded
            if data.source == "example:faq":
                loaded = {key: loaded[key] for key in ("name", "notes")} | {"counts": data.counts()}
        except InputError as error:
            loaded = {"error": list(error.lines)}
        return json.loads(json.dumps(loaded).replace(folder.name, "FOLDER"))


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(outcome(name), ensure_ascii=False)}" for name in CASES)
    GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
