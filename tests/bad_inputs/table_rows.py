"""Tables of one's own, files of other trainers, Python packages, and vectors from files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bad_inputs.table import Bad, Make, edit, make_folder, matching, table, write

ON = "evaluate --model model --split train"
P_CSV = f"{ON} p.csv"
NOT_UTF8 = "not UTF-8; give the encoding with --encoding, such as cp1252 (Windows) or utf-16"
GOOD = write("p.csv", "query,document\na,b\n")
DOCS = write("docs.csv", "id,text\n007,bond\n8,eight\n")
QUERIES = write("queries.csv", "id,text\n1,who\n2,what\n")
BY_ID = f"{ON} --pairs pairs.csv --documents docs.csv --queries queries.csv"

ROLES = "(known: query, document, query_id, document_id, title, grade, weight, split, negative, id, text)"


TABLES = [
    *table("", """
evaluate data --pairs p.csv --documents d.csv --model model => --pairs --documents: cannot be combined with a data set
    (data); pass one or the other
evaluate --model model --split train --pairs eval=p.csv => --pairs: a split must be train, dev or test, got 'eval'
    """),
    Bad("evaluate --model model --split train --pairs train=p.csv", "p.csv:3: column 'split' must be train, dev or "
        "test and agree with the file name, got 'test'", write("p.csv", "query,document,split\na,b,train\nc,d,test\n")),
    Bad("evaluate t.jsonl --model model --skip-bad-rows", "--skip-bad-rows: applies only to tables in files, not to "
        "t.jsonl; --pairs FILE reads query, pos and neg of a FlagEmbedding file as a table",
        write("t.jsonl", '{"query": "a", "pos": ["b"]}\n')),
    *table(P_CSV, """
left,right⏎a,b => p.csv: OPERA recognises no column for the query and the document; the columns are 'left',
    'right'; choose some, as in --columns query=left,document=right; if the file has no header:
    --columns query=1,document=2
query,question,answer⏎a,b,c => p.csv: 'query' and 'question' could each be the query; choose one, as in --columns
    query=query
query,document⏎a,b⏎c,"d⏎e,f => p.csv:3: a quotation mark has no partner; put a field with quotation marks in quotes
    and double the marks inside: "5"" pipe"
query,document,split⏎a,b,train⏎c,d,holdout => p.csv:3: column 'split' must be train, dev or test and agree with
    the file name, got 'holdout'
query,document,score⏎a,b,1⏎c,d,high => p.csv:3: column 'score' must be a number, got 'high'
query,document,weight⏎a,b,1⏎c,d,-2 => p.csv:3: weight must be 0 or more, got -2
query,document,score⏎a,b,1⏎c,d,4000 => p.csv:3: grade must be between -1000 and 1000, got 4000; pass counts,
    such as clicks, as weights: --columns weight=COLUMN
question,answer⏎a,⏎b,c⏎d,⏎,e => p.csv:2: column 'answer' must not be empty; fill it or remove the row
    (2 of 4 rows)⏎p.csv:5: column 'question' must not be empty; fill it or remove the row⏎pass --skip-bad-rows to
    leave out these 3 of 4 rows
query,doc_id⏎a,1 => p.csv: has ids of documents ('doc_id') but not their texts; pass the texts with
    --documents FILE
    """, lambda lines: write("p.csv", lines + "\n")),
    Bad(f"{ON} p.jsonl", "p.jsonl:1: column 'query' must contain texts or whole numbers, but its type is bool",
        write("p.jsonl", '{"query": true, "document": "b"}\n')),
    Bad(f"{ON} c.jsonl", "c.jsonl: has texts but no pairs, like a file of a BEIR folder; "
        "pass the folder that contains its qrels/",
        write("c.jsonl", '{"_id": "d", "title": "", "text": "x"}\n')),
    Bad(BY_ID, "pairs.csv:3: document '7' is not an id in the table of documents; add it to the table, "
        "or remove its pairs (2 of 4 rows)\npass --skip-bad-rows to leave out these 2 of 4 rows", DOCS, QUERIES,
        write("pairs.csv", "query_id,doc_id\n1,007\n2,7\n2,007\n1,9\n")),
    Bad(f"{ON} --documents docs.csv", "--documents: needs --pairs FILE, the table of pairs", DOCS),
    Bad(f"{ON} --pairs p.json",
        "p.json: must be a table (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, .feather, .xlsx, .gz of these); write "
        "JSON as .jsonl, one object per line", write("p.json", "[]")),
    Bad(f"{P_CSV} --columns query", "--columns: must be ROLE=COLUMN, separated by commas, as in "
        "query=q,document=doc_id; got 'query'", GOOD),
    Bad(f"{P_CSV} --columns querry=a", f"--columns: unknown role 'querry'; did you mean 'query'? {ROLES}", GOOD),
    Bad("train t.jsonl --model model --out out",
        "t.jsonl:2: byte 0xe9 (character 33) is not UTF-8; convert the file to UTF-8",
        write("t.jsonl", b'{"query": "a", "pos": ["b"], "neg": ["c"]}\n{"query": "c", "pos": ["what caf\xe9"]}\n')),
    Bad(P_CSV, f"p.csv:3: byte 0xe9 (character 6) is {NOT_UTF8}", write("p.csv", b"query,document\na,b\nc,caf\xe9\n")),
    Bad(f"{P_CSV} --encoding latinx", "--encoding: must be an encoding that Python knows, such as cp1252, latin-1 or "
        "utf-16, got 'latinx'", GOOD),
    Bad("evaluate p.parquet --model model --split train",
        matching(r"p\.parquet: cannot be read \(Parquet magic bytes not found in footer\..*\)"),
        write("p.parquet", b"PAR1 and more")),
    Bad(BY_ID.replace("pairs.csv", "run.txt"), "run.txt: is a TREC run (QUERY Q0 DOCUMENT RANK SCORE NAME), "
        "not judgements; pass a qrels file (QUERY 0 DOCUMENT GRADE)", DOCS, QUERIES,
        write("run.txt", "1 Q0 007 1 3.25 bm25\n")),
    Bad(BY_ID.replace("pairs.csv", "qrels.txt"), "qrels.txt:1: column 'grade' must be a number, got 'high'", DOCS,
        QUERIES, write("qrels.txt", "1 1st 007 high\n")),
]  # fmt: skip

DPR = '{"question": "q", "positive_ctxs": [{"title": "t", "text": "a"}]}'
FIRST = '{"query": "q", "pos": ["a"]}\n'
PAIRS = [
    *table("train pairs.jsonl --model model --out run", """
{"query": "x"} => column 'pos' is missing (it has: query)
{"query": "x", "pos": []} => column 'pos' must not be empty; fill it or remove the row
{"query": "x", "pos": ["a"], "neg": [["a"]]} => column 'neg' must be a text or a number, got ['a']
{"query": ["x"], "pos": ["a"]} => column 'query' must be a text or a number, got ['x']
{"query": "x", "pos": ["a"], "pos_scores": [1, 2]} => column 'pos_scores' must have one number for each
    text of 'pos', got 2 for 1
{"query": "x", "pos": ["a"], "pos_scores": ["high"]} => column 'pos_scores' must be a number, got 'high'
    """, lambda line: write("pairs.jsonl", FIRST + line + "\n"), "pairs.jsonl:2: "),
    *table("train dpr.json --model model --out run", """
{"question": "x", "positive_ctxs": [{"title": "t"}]} => column 'positive_ctxs' must not be empty; fill it or remove the
    row
{"question": "", "positive_ctxs": [{"text": "a"}]} => column 'question' must not be empty; fill it or remove the row
{"question": "x", "positive_ctxs": ["a"]} => column 'positive_ctxs' must be an object, got 'a'
{"question": "x", "positive_ctxs": {"text": "a"}} => column 'positive_ctxs' must be a list, got {'text': 'a'}
{"question": "x", "positive_ctxs": [] =~ not JSON \\(Expecting ',' delimiter at .*
    """, lambda record: write("dpr.json", f"[{DPR},⏎{record}⏎]".replace("⏎", "\n")), "dpr.json, record 2: "),
    Bad("train dpr.json --model model --out run", matching(r"dpr\.json, record 2: not JSON \(.*"),  # cut off
        write("dpr.json", f"[{DPR},\n")),
    Bad("train pairs --model model --out run", "pairs: the splits 'dev' and 'validation' both mean dev; rename one of "
        "them, or leave it out", *(write(f"pairs/{name}.jsonl", FIRST) for name in ("train", "dev", "validation"))),
    Bad("train pairs --model model --out run", matching(r"pairs/more\.jsonl:1: not JSON \(.*"),  # not left out
        write("pairs/train.jsonl", FIRST), write("pairs/more.jsonl", "{\n" + FIRST)),
    Bad("train pairs --model model --out run", "pairs/more.jsonl: is empty; it must have at least one row",
        write("pairs/train.jsonl", FIRST), write("pairs/more.jsonl", "\n")),
]  # fmt: skip

PACKAGES = table(
    "evaluate --model model",
    """
python:../etc => python:PACKAGE: must be the import name of a package, such as json, got '../etc'
python:math => python:math: no package with this import name is installed, or it has no
    Python source files
""",
)


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

VECTORS = [
    vectors(f"{NO_ARRAY} (18 rows, but q.txt has 1 id)", write("q.txt", "test0\n")),
    vectors("q.npy: has no vector for query 'train0'; add the missing 1 of 18 vectors",
        edit("q.txt", 1, "other")),
    vectors(NO_NUMBER, change_vectors(lambda vectors: vectors * np.float32("nan"))),
    vectors("d.npy: has vectors of dimension 8, but q.npy has 4; use vectors of one model",
        change_vectors(lambda vectors: vectors[:, :4])),
    vectors(f"{NO_ARRAY} (Array can't be memory-mapped: Python objects in dtype.)",
        change_vectors(lambda vectors: vectors.astype(object))),
]  # fmt: skip


TRAINER_FILES = [
    Bad("evaluate mine --model model", message,
        write("mine/corpus.jsonl", corpus),
        write("mine/test_queries.jsonl", '{"id": "t", "text": "asked"}\n'),
        write("mine/test_qrels.jsonl", f'{{"qid": "t", "docid": "{judged}", "relevance": 1}}\n'))
    for corpus, judged, message in (
        ('{"id": "x", "text": "a"}\n', "y",
         "mine/test_qrels.jsonl:1: document 'y' has no text in these files"),
        ('{"id": "x", "text": "a"}\n{"id": "x", "text": "b"}\n', "x",
         "mine/corpus.jsonl:2: document 'x' has a different text than before; give each text its own id"),
    )
]  # fmt: skip


FEW = "no text has a unique title, heading or question of at least three words with a text below it"
WEAK = [
    *table("pairs", """
data --out w.tsv => --out w.tsv: must end in .csv or .parquet or .jsonl; the suffix decides the format
python:json --columns text=a --out w.csv => --columns: applies only to tables, not to python:json
    """),
    Bad("pairs data --out w.csv", f"data: {FEW}"),
    Bad("pairs notes --out w.csv", "notes/a.md:2: not UTF-8; convert the file to UTF-8",
        make_folder("notes"), write("notes/a.md", b"# Of three words\ncaf\xe9")),
    Bad("pairs docs.csv --out docs.csv --overwrite", "--out docs.csv: is read by this command; pass another file",
        write("docs.csv", "title,text\na b c,d\n")),
    Bad("pairs docs.jsonl --out w.csv", matching(r"docs\.jsonl:2: column 'text' must .*"),
        write("docs.jsonl", '{"title": "a b c", "text": "d"}\n{"title": "a b c", "text": {"d": 1}}\n')),
]  # fmt: skip

ROWS = [*WEAK, *TABLES, *PAIRS, *PACKAGES, *VECTORS, *TRAINER_FILES]
