"""Tables of one's own, files of other trainers, Python packages, and vectors from files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bad_inputs.table import Bad, Make, edit, make_folder, matching, pipe, remove, table, write

ON = "evaluate --model model --split train"
P_CSV, P_JSONL = "evaluate p.csv --model model --split train", "evaluate p.jsonl --model model --split train"
NOT_UTF8 = "not UTF-8; give the encoding with --encoding, such as cp1252 (Windows) or utf-16"
GOOD = write("p.csv", "query,document\na,b\n")
DOCS = write("docs.csv", "id,text\n007,bond\n8,eight\n")
QUERIES = write("queries.csv", "id,text\n1,who\n2,what\n")
BY_ID = f"{ON} --pairs pairs.csv --documents docs.csv --queries queries.csv"
UNKNOWN = "OPERA recognises no column for the"
ROLES = "(known: query, document, query_id, document_id, title, grade, weight, split, negative, id, text)"


def in_file(name: str) -> Callable[[str], Make]:
    """Write lines to a file."""
    return lambda lines: write(name, lines + "\n")


def trec(lines: str) -> Make:
    """Write lines behind a comment into a file of TREC's judgements, and the texts beside it."""

    def make(folder: Path) -> None:
        for part in (DOCS, QUERIES, write("qrels.txt", f"# judged by hand\n{lines}\n")):
            part(folder)

    return make


TABLES = [
    *table("", """
evaluate data --pairs p.csv --documents d.csv --model model => --pairs --documents: cannot be combined with a data set
    (data); pass one or the other
evaluate --model model --split train --pairs away.csv => away.csv: cannot be read (No such file or directory)
evaluate --model model --split train --pairs eval=p.csv => --pairs: a split must be train, dev or test, got 'eval'
search --pairs p.csv --model model => missing argument 'QUERY'; see opera search --help
    """),
    Bad("evaluate t.jsonl --model model --skip-bad-rows", "--skip-bad-rows: applies only to tables in files, not to "
        "t.jsonl; --pairs FILE reads query, pos and neg of a FlagEmbedding file as a table",
        write("t.jsonl", '{"query": "a", "pos": ["b"]}\n')),
    *table(P_CSV, """
left,right⏎a,b => p.csv: OPERA recognises no column for the query and the document; the columns are 'left',
    'right'; choose some, as in --columns query=left,document=right; if the file has no header:
    --columns query=1,document=2
query,question,answer⏎a,b,c => p.csv: 'query' and 'question' could each be the query; choose one, as in --columns
    query=query
query,query⏎a,b => p.csv: two columns are called 'query'; rename one
query,document => p.csv: has no pairs
query,document⏎"a⏎b",c⏎d => p.csv:4: must have 2 columns ('query', 'document'), got 1: 'd'
query,document⏎a,b⏎c,"d⏎e,f => p.csv:3: quotation marks do not match (unexpected end of data); quote a field
    that contains one, and double each one inside: "5"" pipe" (2 of 3 rows)⏎--skip-bad-rows leaves out
    these 2 of 3 rows
query,document⏎a,"b"c => p.csv:2: quotation marks do not match (',' expected after '"'); quote a field that
    contains one, and double each one inside: "5"" pipe"
question,answer⏎a,b⏎c,  => p.csv:3: column 'answer' must not be empty; fill it or remove the row
query,document,split⏎a,b,train⏎c,d,holdout => p.csv:3: column 'split' must be train, dev or test, got 'holdout'
query,document,score⏎a,b,1⏎c,d,high => p.csv:3: column 'score' must be a number, got 'high'
query,document,weight⏎a,b,1⏎c,d,-2 => p.csv:3: weight must be 0 or more, got -2
query,document,score⏎a,b,1⏎c,d,4000 => p.csv:3: grade must be between -1000 and 1000, got 4000; pass counts,
    such as clicks, as weights: --columns weight=COLUMN
query,document,clicks⏎a,b,1⏎c,d,1e39 => p.csv:3: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size, got
    1e+39; rescale the column
query,document,clicks⏎a,b,3e38⏎a,b,3e38 => p.csv:2: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size,
    got 3e+38; rescale the column (2 of 2 rows)
question,answer⏎a,⏎b,c⏎d,⏎,e => p.csv:2: column 'answer' must not be empty; fill it or remove the row
    (2 of 4 rows)⏎p.csv:5: column 'question' must not be empty; fill it or remove the row⏎--skip-bad-rows leaves out
    these 3 of 4 rows
query,document,clicks⏎a,b,1⏎c,d,1e-50 => p.csv:3: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size,
    got 1e-50; rescale the column
query,doc_id⏎a,1 => p.csv: has ids of documents ('doc_id') but not their texts; pass the texts with
    --documents FILE
query,doc_id,document⏎a,d1,x⏎b,d\t2,y => p.csv:3: column 'doc_id' must not contain a tab, a line break or another
    control character, got 'd\\t2'
qid,query,document⏎,a,x => p.csv:2: column 'qid' must not be empty
one, two;query;"a;b⏎c => p.csv:1: quotation marks do not match (unexpected end of data); quote a field that contains
    one, and double each one inside: "5"" pipe"
    """, in_file("p.csv")),
    *table(P_JSONL, """
{"question": "a", "reply": "b"} => p.jsonl: OPERA recognises no column for the document; the columns are
    'question', 'reply'; choose some, as in --columns document=reply
{"query": "a", "document": "b", "grade": 0.5}⏎{"query": "c", "document": "d", "grade": 1e39} => p.jsonl:2: column
    'grade' must be 0, or from 1e-37 to 1e+28 in size, got 1e+39; rescale the column
{"query": true, "document": "b"} => p.jsonl:1: column 'query' must contain texts or whole numbers, but its type is bool
{"query": "a", "document": ["b", true]} => p.jsonl:1: column 'document' must be a text or a number, got True
{"query": "a", "document": ["b"]}⏎{"query": "c", "document": []} => p.jsonl:2: column 'document' must not be empty;
    fill it or remove the row
null => p.jsonl:1: must be a JSON object, got None
    """, in_file("p.jsonl")),
    *table(BY_ID, """
query_id,doc_id⏎1,007⏎2,7 => pairs.csv:3: document '7' is not an id in the table of documents; add it to the
    table, or remove its pairs
query_id,doc_id⏎1,007⏎2,7⏎2,007⏎1,9 => pairs.csv:3: document '7' is not an id in the table of documents;
    add it to the table, or remove its pairs (2 of 4 rows)⏎--skip-bad-rows leaves out these 2 of 4 rows
query_id,doc_id⏎1,007⏎2.0,8 => pairs.csv:3: query '2.0' is not an id in the table of queries; add it to the table,
    or remove its pairs
    """, lambda text: lambda folder: [make(folder) for make in (DOCS, QUERIES, write("pairs.csv", text + "\n"))]),
    Bad(f"{ON} --documents docs.csv", "--documents: needs --pairs FILE, the table of pairs", DOCS),
    Bad(f"{ON} --pairs p.json",
        "p.json: must be a table (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, .feather, .gz of these); write "
        "JSON as .jsonl, one object per line", write("p.json", "[]")),
    Bad(f"{P_CSV} --columns query", "--columns: must be ROLE=COLUMN, separated by commas, as in "
        "query=q,document=doc_id; got 'query'", GOOD),
    Bad(f"{P_CSV} --columns querry=a", f"--columns: unknown role 'querry'; did you mean 'query'? {ROLES}", GOOD),
    Bad(f"{P_CSV} --columns query=a,query=b", "--columns: the role query is given twice", write("p.csv", "a,b\n")),
    Bad(f"{P_CSV} --columns query=qestion", "--columns query=qestion: no file has this column for the role "
        "query; did you mean 'question'? (p.csv: 'question', 'answer')", write("p.csv", "question,answer\na,b\n")),
    Bad(f"{P_CSV} --columns query=Ticket,document=body", "--columns query=Ticket: p.csv has no such column; did you "
        "mean 'ticket#'? (it has: 'ticket#', 'body')", write("p.csv", "ticket#,body\na,b\n")),
    Bad(f"{P_CSV} --columns document=body", "p.csv: OPERA recognises no column for the query; the columns are 'x', "
        "'body'; choose some, as in --columns document=body,query=x; if the file has no header: --columns query=1",
        write("p.csv", "x,body\na,b\n")),
    Bad(P_CSV, "p.csv: is empty; it must have at least one row", write("p.csv", "")),
    Bad(P_CSV, f"p.csv:3: byte 0xe9 (character 6) is {NOT_UTF8}", write("p.csv", b"query,document\na,b\nc,caf\xe9\n")),
    Bad(P_CSV, f"p.csv:1: {NOT_UTF8}", write("p.csv", "query,document\n".encode("utf-16"))),
    Bad(f"{P_CSV} --encoding latinx", "--encoding: must be an encoding that Python knows, such as cp1252, latin-1 or "
        "utf-16, got 'latinx'", GOOD),
    Bad(BY_ID.replace("pairs.csv", "pairs.jsonl"),
        "pairs.jsonl:1: column 'doc_id' must contain texts or whole numbers, but its type is bool",
        write("docs.csv", "id,text\n1,bond\n"), QUERIES, write("pairs.jsonl", '{"query_id": 1, "doc_id": true}\n')),
    Bad("evaluate p.ndjson --model model --split train",
        "p.ndjson:2: column 'answer' must be a text or a number, got {'text': 'b'}",
        write("p.ndjson", '{"question": "a", "answer": "b"}\n{"question": "a", "answer": {"text": "b"}}\n')),
    Bad("evaluate p.parquet --model model --split train",
        matching(r"p\.parquet: cannot be read \(Parquet magic bytes not found in footer\..*\)"),
        write("p.parquet", b"PAR1 and more")),
    Bad("evaluate p.csv.gz --model model --split train", matching(r"p\.csv\.gz: cannot be read \(.*\)"),
        write("p.csv.gz", b"\x1f\x8b\x08\x00spoilt")),
    Bad("evaluate --pairs valid=p.csv --model model --split train",
        "p.csv: has no split 'train'; pass --split dev", GOOD),
    Bad(BY_ID, "docs.csv:4: duplicate id '7'; first seen at docs.csv:2, and ids must be unique",
        write("docs.csv", "id,text\n7,a\n8,b\n7,c\n"), QUERIES, write("pairs.csv", "query_id,doc_id\n1,8\n")),
    Bad(BY_ID, "pairs.csv:2: a relevant pair has a query or document without a text; add it or remove the pair",
        write("docs.csv", "id,text\n7,\n8,b\n"), QUERIES, write("pairs.csv", "query_id,doc_id\n1,7\n")),
    Bad(f"{ON} --pairs run.txt --documents docs.csv --queries queries.csv",
        "run.txt: is a TREC run (QUERY Q0 DOCUMENT RANK SCORE NAME), not judgements; pass a qrels file (QUERY 0 "
        "DOCUMENT GRADE)", DOCS, QUERIES, write("run.txt", "1 Q0 007 1 3.25 bm25\n")),
    Bad(f"{ON} --pairs qrels.txt --documents docs.csv --queries queries.csv",
        "qrels.txt:2: must have 4 columns ('query_id', 'iteration', 'document_id', 'grade'), got 3: '2 0 8'", DOCS,
        QUERIES, write("qrels.txt", "1 0 007 1\n2 0 8\n")),
    *table(f"{ON} --pairs qrels.txt --documents docs.csv --queries queries.csv", """
1 1st 007 high => qrels.txt:2: column 'grade' must be a number, got 'high'
1 0 007 1,0 => qrels.txt:2: column 'grade' must be a number, got '1,0'
1 0 007 4e3 => qrels.txt:2: grade must be between -1000 and 1000, got 4000; pass counts, such as clicks, as weights:
    --columns weight=COLUMN
# 0 007 1⏎1 0 9 1 => qrels.txt:3: document '9' is not an id in the table of documents; add it to the table, or
    remove its pairs
    """, trec),
    Bad(f"{ON} --pairs qrels.txt --documents docs.tsv --queries queries.csv",
        f"docs.tsv: {UNKNOWN} id and the text; the columns are 'D1', 'http://x', 'Body'; choose some, "
        "as in --columns documents.id=D1,documents.text=http://x; if the file has no header: --columns "
        "documents.id=1,documents.text=2",
        write("docs.tsv", "D1\thttp://x\tBody\n"), QUERIES, write("qrels.txt", "1 0 D1 1\n")),
]  # fmt: skip

FIRST = '{"query": "q", "pos": ["a"]}\n'
PAIRS = [
    *table("train pairs.jsonl --model model --out run", """
{ => not JSON (Expecting property name enclosed in double quotes at column 2): {given}
{"query": "x", "pos": ["\\ud83d"]} => holds half a character ('\\ud83d'); remove it: {given}
{"query": "x"} => column 'pos' is missing (it has: query)
{"query": "x", "pos": []} => column 'pos' must not be empty; fill it or remove the row
{"query": "x", "pos": null} => column 'pos' must not be empty; fill it or remove the row
{"query": "x", "pos": [""]} => column 'pos' must not be empty; fill it or remove the row
{"query": " ", "pos": ["a"]} => column 'query' must not be empty; fill it or remove the row
{"query": ["x"], "pos": ["a"]} => column 'query' must be a text or a number, got ['x']
{"query": "x", "pos": ["a"], "pos_scores": [1, 2]} => column 'pos_scores' must have one number for each
    text of 'pos', got 2 for 1
{"query": "x", "pos": ["a"], "neg_scores": [1]} => column 'neg_scores' must have one number for each text of
    'neg', got 1 for 0
{"query": "x", "pos": ["a"], "pos_scores": [true]} => column 'pos_scores' must be a text or a number, got True
{"query": "x", "pos": ["a"], "pos_scores": ["high"]} => column 'pos_scores' must be a number, got 'high'
    """, lambda line: write("pairs.jsonl", FIRST + line + "\n"), "pairs.jsonl:2: "),
    *(
        Bad("train pairs.jsonl --model model --out run",
            f"pairs.jsonl:2: column '{key}' {rule}",
            write("pairs.jsonl", FIRST + json.dumps({"query": "x", "pos": ["a"], key: seen}) + "\n"))
        for key in ("pos", "neg")
        for seen, rule in (
            *((own, f"must be a list, got {own!r}") for own in (0, "a")),
            ([["a"]], "must be a text or a number, got ['a']"),
        )
    ),
    Bad("train pairs.jsonl --model model --out run",
        "pairs.jsonl:2: column 'pos' must not be empty; fill it or remove the row",
        write("pairs.jsonl", FIRST + '{"query": "x", "pos": [null]}\n')),
    Bad("train pairs.jsonl --model model --out run", "pairs.jsonl: has no pairs", write("pairs.jsonl", "\n")),
    Bad("train pairs --model model --out run", matching(r"pairs/more\.jsonl:1: not JSON \(.*"),  # not left out
        write("pairs/train.jsonl", FIRST), write("pairs/more.jsonl", "{\n" + FIRST)),
]  # fmt: skip

PACKAGES = [
    *(
        Bad(["evaluate", f"python:{name}", "--model", "model"],
            f"python:PACKAGE: must be the import name of a package, such as json, got {name!r}")
        for name in ("", "..", "a..b", "a-b", "../etc")
    ),
    *(
        Bad(f"evaluate python:{name} --model model", f"python:{name}: there is no installed package of this "
            "import name with Python source files")
        for name in ("__main__", "no_such_package", "json.decoder.none", "math")
    ),
]  # fmt: skip


def vectors(message: str, *make: Make) -> Bad:
    """A row that trains an adapter on vectors from files; the document vectors are good."""
    command = "train data --query-vectors q.npy --document-vectors d.npy --out run"
    return Bad(command, message, good_vectors, *make)


def good_vectors(folder: Path) -> None:
    """Write vectors of all queries and documents."""
    for name, ids in (("q", "queries.jsonl"), ("d", "corpus.jsonl")):
        names = [line.split('"')[3] for line in (folder / "data" / ids).read_text().splitlines()]
        np.save(folder / f"{name}.npy", np.eye(len(names), 8, dtype=np.float32) + 1)
        (folder / f"{name}.txt").write_text("\n".join(names) + "\n")


def change_vectors(change: Callable[[np.ndarray], np.ndarray]) -> Make:
    """Save changed query vectors."""
    return lambda folder: np.save(folder / "q.npy", change(np.load(folder / "q.npy")), allow_pickle=True)


NO_NUMBER = "q.npy: the vector of 'train0' is zero, too long, or has a value that is not a number"
NO_ARRAY = "q.npy: must hold a float array [n, d], with one id per line in a .txt file of the same name"
LIKE = re.escape(NO_ARRAY)

VECTORS = [
    Bad("train data --query-vectors q.csv --document-vectors q.csv --out run",
        "q.csv: must end in .npy or .parquet, which decides the format"),
    vectors("q.txt: cannot be read (No such file or directory)", remove("q.txt")),
    vectors(f"{NO_ARRAY} (18 rows, but q.txt has 1 id)", write("q.txt", "test0\n")),
    vectors("q.npy: has two vectors for the id 'test0'; remove one", edit("q.txt", 1, "test0")),
    vectors("q.npy: has no vector for query 'train0'; add the missing 1 of 18 vectors",
        edit("q.txt", 1, "other")),
    vectors(NO_NUMBER, change_vectors(lambda v: v * np.float32("nan"))),
    vectors(NO_NUMBER, change_vectors(lambda v: v * 0)),
    vectors(f"{NO_ARRAY} (it holds [18, 8] of int64)",
        change_vectors(lambda v: v.astype(int))),
    vectors("d.npy: must have vectors of dimension 4, as q.npy has, got 8; use vectors of one model",
        change_vectors(lambda v: v[:, :4])),
    vectors(f"{NO_ARRAY} (Array can't be memory-mapped: Python objects in dtype.)",
        change_vectors(lambda v: v.astype(object))),
    vectors(matching(LIKE + r" \(the magic string is not correct.*\)"), write("q.npy", "these are no vectors")),
    vectors("q.npy: cannot be read (it is a named pipe)", pipe("q.npy")),
    vectors("q.npy: cannot be read (No such file or directory)", remove("q.npy")),
    vectors("q.txt:1: not UTF-8; convert the file to UTF-8", write("q.txt", b"caf\xe9")),
]  # fmt: skip


def trainer_files(message: str, *make: Make) -> Bad:
    """A row of a folder with FlagEmbedding's evaluation files, which are good, and what the row makes."""
    good = {
        "corpus.jsonl": '{"id": "x", "text": "a"}\n',
        "test_queries.jsonl": '{"id": "t", "text": "asked"}\n',
        "test_qrels.jsonl": '{"qid": "t", "docid": "x", "relevance": 1}\n',
    }
    files = [write(f"mine/{file}", content) for file, content in good.items()]
    return Bad("evaluate mine --model model", message, make_folder("mine"), *files, *make)


TEVATRON = '{"query_id": "1", "query": "q", "positive_passages": '
TRAINER_FILES = [
    trainer_files("mine/test_qrels.jsonl:1: document 'y' has no text in these files",
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "y", "relevance": 1}\n')),
    trainer_files("mine/test_qrels.jsonl:2: document 'd1' has no text in these files",
        write("mine/train.jsonl", '{"query": "q", "pos": ["b"]}\n'),
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "x"}\n{"qid": "t", "docid": "d1"}\n')),
    trainer_files(
        "mine/dev.jsonl:1: column 'pos' is missing (it has: query)",
        write("mine/dev.jsonl", '{"query": "q"}\n{"query": "r", "pos": ["a"]}\n')),
    trainer_files("mine/corpus.jsonl:2: document 'x' has a different text than before; give each text its own id",
        write("mine/corpus.jsonl", '{"id": "x", "text": "a"}\n{"id": "x", "text": "b"}\n')),
    trainer_files("mine/train.jsonl:1: column 'positive_passages' must be an object, got 'x'",
        write("mine/train.jsonl", TEVATRON + '["x"]}\n')),
    trainer_files("mine/train.jsonl:1: column 'positive_passages' must not be empty; fill it or remove the row",
        write("mine/train.jsonl", TEVATRON + '[{"title": "x"}]}\n')),
    trainer_files("mine/train.jsonl:1: document 'z' has no text in these files",
        write("mine/train.jsonl", '{"query_id": "1", "query": "q", "positive_document_ids": ["z"]}\n')),
]  # fmt: skip

FEW = "no text has a unique title, heading or question of at least three words with a text below it"
WEAK = [
    *table("pairs", """
absent --out w.csv =~ absent: cannot be read \\(No such file or directory\\)
paper:fiqa --out w.csv =~ paper:fiqa: cannot be read \\(No such file or directory\\)
python:absent --out w.csv => python:absent: there is no installed package of this import name with Python
    source files
model --out w.csv => model: has no table (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, .feather)
data --out w.tsv => --out w.tsv: must end in .csv or .parquet or .jsonl; the suffix decides the format
data => missing option '--out'; see opera pairs --help
python:json --columns text=a --out w.csv => --columns: applies only to tables, not to python:json
data --columns body --out w.csv => --columns: must be ROLE=COLUMN, separated by commas, as in query=q,document=doc_id;
    got 'body'
    """),
    Bad("pairs data --out w.csv", f"data: {FEW}"),
    Bad("pairs notes --out w.csv", "notes/a.md:2: not UTF-8; convert the file to UTF-8",
        make_folder("notes"), write("notes/a.md", b"# Of three words\ncaf\xe9")),
    Bad("pairs notes --out w.csv", f"notes: {FEW}", make_folder("notes"), write("notes/a.md", "# Too short\nx\n")),
    Bad("pairs docs.csv --out docs.csv --overwrite", "--out docs.csv: is read by this command; pass another file",
        write("docs.csv", "title,text\na b c,d\n")),
    Bad("pairs docs.csv --out w.csv", "docs.csv: OPERA recognises no column for the text; the columns are 'title', "
        "'words'; choose some, as in --columns documents.text=words; if the file has no header: --columns "
        "documents.text=1", write("docs.csv", "title,words\na b c,d\n")),
    Bad("pairs docs.csv --columns text=sentence --out w.csv", matching(r"--columns text=sentence: no file has .*"),
        write("docs.csv", "title,words\na b c,d\n")),
    Bad("pairs docs.jsonl --out w.csv", matching(r"docs\.jsonl:2: column 'text' must .*"),
        write("docs.jsonl", '{"title": "a b c", "text": "d"}\n{"title": "a b c", "text": {"d": 1}}\n')),
]  # fmt: skip

ROWS = [*WEAK, *TABLES, *PAIRS, *PACKAGES, *VECTORS, *TRAINER_FILES]
