"""Bad BEIR folders: corpus, queries, qrels, and what stands in the place of a file; names of published data sets."""

from __future__ import annotations

from pathlib import Path

from bad_inputs.table import Bad, Make, cut, link, make_folder, matching, pipe, remove, table, write

EVALUATE = "evaluate data --model model"
PASS = (
    "pass a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a .jsonl file or a folder of FlagEmbedding or Tevatron, "
    "a table of pairs (.csv, .tsv, .jsonl, .parquet, .arrow, or a folder of these), "
    "example:faq, python:PACKAGE, irds:ID, hf:OWNER/NAME, --pairs FILE or paper:NAME"
)
CORPUS, QRELS, TEST = "data/corpus.jsonl:3: ", "data/qrels/test.tsv:2: ", "data/qrels/test.tsv"
HEADER = "query-id\tcorpus-id\tscore\n"
NOT_UTF8 = "not UTF-8; convert the file to UTF-8"
NO_BEIR = "data: not a BEIR folder:"
NO_QRELS = f"{NO_BEIR} qrels/ holds no .tsv file such as qrels/train.tsv"


def put(name: str, number: int, line: str | bytes) -> Make:
    """Put bytes in place of a line."""

    def make(home: Path) -> None:
        lines = (home / name).read_bytes().split(b"\n")
        lines[number - 1] = line.encode() if isinstance(line, str) else line
        (home / name).write_bytes(b"\n".join(lines))

    return make


def corpus(line: str | bytes) -> Make:
    """Put another line in place of the third document."""
    return put("data/corpus.jsonl", 3, line)


def judgement(line: str | bytes) -> Make:
    """Put another line in place of the first judgement."""
    return put(TEST, 2, line)


def to_utf16(name: str) -> Make:
    """Write a file anew in another encoding."""
    return lambda home: (home / name).write_text((home / name).read_text(), encoding="utf-16")


def two_sets(home: Path) -> None:
    """Make a folder of two BEIR folders."""
    for name in ("a", "b"):
        (home / "sets" / name / "qrels").mkdir(parents=True)
        (home / "sets" / name / "corpus.jsonl").write_text('{"_id": "x", "text": "y"}\n')


CORPORA = [
    *table(EVALUATE, """
{oops => not JSON (Expecting property name enclosed in double quotes at column 2): {given}
\t\t => not JSON (Expecting value at column 3): {given}
\x0c => not JSON (Expecting value at column 1): {given}
\xa0 => not JSON (Expecting value at column 1): {given}
{} {} => not JSON (Extra data at column 4): {given}
{"_id": "x", "text": "y"}, => not JSON (Extra data at column 26): {given}
{'_id': 'x'} => not JSON (Expecting property name enclosed in double quotes at column 2): {given}
{"_id": "x", "text": "cut \\ud83d"} => holds half a character ('\\ud83d'); remove it: {given}
{"metadata": "\\udc00"} => holds half a character ('\\udc00'); remove it: {given}
{"_id": "x", "text": "a\tb"} => not JSON (Invalid control character at column 24): {given}
{"_id": "x", "text": "a\x00b"} => not JSON (Invalid control character at column 24): {given}
[1] => must be a JSON object, got [1]
7 => must be a JSON object, got 7
{"_id": "x", "body": "y", "text": "z"} => unknown column 'body' (known: _id, text, title, metadata)
{"_id": "x", "txt": "y"} => unknown column 'txt'; did you mean 'text'? (known: _id, text, title, metadata)
{"_ID": "x", "text": "y"} => unknown column '_ID' (known: _id, text, title, metadata)
{"\\u001b[2J": 1} => unknown column '\\x1b[2J' (known: _id, text, title, metadata)
{"_id": "x"} => column 'text' is missing (it has: _id)
{} => column '_id' is missing (it has: none)
{"_id": "x", "text": true} => column 'text' must be a text or a number, got True
{"_id": "x", "title": ["a"], "text": "b"} => column 'title' must be a text or a number, got ['a']
{"_id": true, "text": "a"} => column '_id' must be a text or a number, got True
{"_id": "", "text": "a"} => column '_id' must not be empty
{"_id": " \\u3000", "text": "a"} => column '_id' must not be empty
{"_id": null, "text": "a"} => column '_id' must not be empty
{"_id": "d0", "text": "a"} => duplicate id 'd0'; first seen at data/corpus.jsonl:1, and ids must be unique
    """, corpus, CORPUS),
    *(
        Bad(EVALUATE, f"{CORPUS}column '_id' must not hold a tab, a line break or another control character, "
            f"got 'a{seen}'", corpus(f'{{"_id": "a{escape}", "text": "b"}}'))
        for escape, seen in (
            ("\\t", "\\t"), ("\\n", "\\n"), ("\\r", "\\r"), ("\\u0085", "\\x85"), ("\\u2028", "\\u2028"),
            ("\\u2029b", "\\u2029b"), ("\\u000b", "\\x0b"), ("\\u0000", "\\x00"), ("\\u001b[31m", "\\x1b[31m"),
            ("\\u009b2J", "\\x9b2J"), ("\\u007f", "\\x7f"),
        )
    ),
    Bad(EVALUATE, f"{CORPUS}{NOT_UTF8}", corpus(b'"\xed\xa0\xbd"')),
    Bad(EVALUATE, f"{CORPUS}{NOT_UTF8}", corpus(b'{"_id": "x", "text": "caf\xe9"}')),
]  # fmt: skip

JUDGEMENTS = [
    *(
        Bad(EVALUATE, f"{QRELS}column 'score' must be a number, got {grade!r}",
            judgement(f"test0\td0\t{grade}"))
        for grade in (
            "1_0", "١", "１", "0x1", "high", '"1"', "-", "--1", "−1", "²",
            "1\x0b",
        )
    ),
    *table(EVALUATE, """
test0\td0\t4294967297 => grade must lie between -1000 and 1000, got 4.29497e+09
test0\td0\t => column 'score' is missing
test0\td0\t0.5 => grade must be a whole number, got 0.5
test0\td0\t-1001 => grade must lie between -1000 and 1000, got -1001
test0\td0 => must have 3 columns ('query-id', 'corpus-id', 'score'), got 2: 'test0\\td0'
test0\t0\td0\t1 => must have 3 columns ('query-id', 'corpus-id', 'score'), got 4: 'test0\\t0\\td0\\t1'
\t => must have 3 columns ('query-id', 'corpus-id', 'score'), got 2: '\\t'
nobody\td0\t1 => query 'nobody' is no id in the table of queries; add it there, or remove such pairs
test0\tdX\t1 => document 'dX' is no id in the table of documents; add it there, or remove such pairs
\x1b]0;x\x07\td0\t1 => query '\\x1b]0;x\\x07' is no id in the table of queries; add it there, or remove such pairs
test0 \td0\t1 => query 'test0 ' is no id in the table of queries; add it there, or remove such pairs
\td0\t1 => column 'query-id' must not be empty; fill it or remove the row
    """, judgement, QRELS),
    Bad(EVALUATE, f"{QRELS}column 'score' must be a finite number, got inf",
        judgement(f"test0\td0\t{'9' * 5000}")),
    Bad(EVALUATE, f"{QRELS}byte 0xe9 (character 8) is {NOT_UTF8}", judgement(b"test0\td\xe9\t1")),
    *table(EVALUATE, """
query-id\tcorpus-id\tgrade => {given}
test0\td0\t1 => {given}
query-id corpus-id score => {given}
query-id,corpus-id,score => {given}
query-id\tcorpus-id\t\x1b[2J => {given}
    """, lambda line: put(TEST, 1, line), f"{TEST}:1: the header must be query-id TAB corpus-id TAB score, got "),
    Bad(EVALUATE, f"{TEST}: is empty; it must have at least one row", write(TEST, "")),
    Bad(EVALUATE, f"{TEST}: has no judgements", write(TEST, HEADER)),
    Bad(EVALUATE,
        "data/qrels/dev.tsv:3: grade 2 for a pair that data/qrels/dev.tsv:2 gives grade 1; a pair has one grade",
        write("data/qrels/dev.tsv", HEADER + "test0\td0\t1\ntest0\td0\t2\n")),
    Bad(EVALUATE, f"{TEST}:1: byte 0xff (character 1) is {NOT_UTF8}", to_utf16(TEST)),
    *(
        Bad(EVALUATE, f"{QRELS}a relevant pair (query 'test0', document 'd39'), but the {what} empty; give it a text "
            "or remove the pair", write(TEST, HEADER + "test0\td39\t1\n"), put(f"data/{file}", line, json))
        for what, file, line, json in (
            ("document's title and text are", "corpus.jsonl", 40, '{"_id": "d39", "text": " \\n\\u2003"}'),
            ("document's title and text are", "corpus.jsonl", 40, '{"_id": "d39", "text": null}'),
            ("query's text is", "queries.jsonl", 13, '{"_id": "test0", "text": "\\t"}'),
        )
    ),
]  # fmt: skip

FILES = [
    Bad(EVALUATE, f"{NO_BEIR} corpus.jsonl is missing", remove("data/corpus.jsonl")),
    Bad(EVALUATE, f"{NO_BEIR} queries.jsonl is missing", remove("data/queries.jsonl")),
    Bad(EVALUATE, NO_QRELS, remove("data/qrels")),
    Bad(EVALUATE, NO_QRELS, remove("data/qrels"), write("data/qrels", "")),
    Bad(EVALUATE, NO_QRELS, remove("data/qrels"), write("data/qrels/._test.tsv", "")),
    Bad(EVALUATE, f"{TEST}: names the same split as TEST.tsv; keep one of the two", write("data/qrels/TEST.tsv", "")),
    Bad(EVALUATE, "data/qrels: the name of a split must not hold a tab, a line break or another control character, "
        "got 'a\\nb'", write("data/qrels/a\nb.tsv", "")),
    Bad(EVALUATE, "data/corpus.jsonl: is empty; it must have at least one row", write("data/corpus.jsonl", "\n \n")),
    Bad(EVALUATE, f"data/corpus.jsonl:1: {NOT_UTF8}", to_utf16("data/corpus.jsonl")),
    Bad(EVALUATE, f"data/corpus.jsonl:1: {NOT_UTF8}", write("data/corpus.jsonl", b"\x1f\x8b\x08\0\0")),
    Bad(EVALUATE, "data/corpus.jsonl:1: not JSON (Expecting ':' delimiter at column 41): "
        '\'{"_id": "d0", "title": "common0", "text"\'', cut("data/corpus.jsonl", 40)),
    Bad("evaluate empty --model model", "empty: not a BEIR folder: corpus.jsonl is missing", make_folder("empty")),
    Bad("evaluate sets --model model", "sets: not a BEIR folder: corpus.jsonl is missing; it holds some: pass one, "
        "such as sets/a or sets/b", two_sets),
    *(
        Bad(EVALUATE, f"data/{name}: cannot be read ({reason})", make(f"data/{name}"))
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
        for reason, make in (
            ("it is a named pipe", pipe),
            ("it is a folder", make_folder),
            ("it is a device", lambda name: link(name, "/dev/zero")),
            ("No such file or directory", lambda name: link(name, "nowhere")),
            ("Too many levels of symbolic links", lambda name: link(name, Path(name).name)),
        )
    ),
    Bad("evaluate p.jsonl --model model", f"p.jsonl: is a named pipe; {PASS}", pipe("p.jsonl")),
    Bad("evaluate /dev/null --model model", f"/dev/null: is a device; {PASS}"),
    Bad("evaluate a.xls --model model", f"a.xls: not a kind of data that OPERA reads; {PASS}", write("a.xls", "a,b\n")),
    Bad("evaluate away --model model", f"away: no such file or folder; {PASS}", link("away", "nowhere")),
    Bad("evaluate beir:scifact --model model", f"beir:scifact: no such file or folder; {PASS}"),
]  # fmt: skip


def hub(message: str, line: str) -> Bad:
    """A row whose data is a folder laid out like one of the hub."""
    return Bad("train hf:pairs --model model --out run", f"hf:pairs, train{message}", write("pairs/train.jsonl", line))


PUBLISHED = [
    *table("evaluate --model model", """
irds: => irds:: must be an id of ir_datasets, such as irds:beir/nfcorpus
irds:../data => irds:../data: must be an id of ir_datasets, such as irds:beir/nfcorpus
irds:beir/fiqua => irds:beir/fiqua: ir_datasets has no such data set; did you mean 'beir/fiqa'?
irds:tripclick/logs => irds:tripclick/logs: ir_datasets has no judgements of it
example: => example:: must be example:faq
example:../faq => example:../faq: must be example:faq
hf: => hf:: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT
hf:/ => hf:/: must be the folder of one data set
hf:nfcorpus => hf:nfcorpus: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT
'hf:a b/c' => hf:a b/c: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT
hf:a/\u202eb => hf:a/\\u202eb: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT
    """),
    Bad("evaluate hf:.pairs --model model", "hf:.pairs: has no files but hidden ones",
        write(".pairs/.train.jsonl", "{}")),
    hub(": no column has a name known for the query and the document; its columns are 'left', 'right'; say which "
        "to take, as in --columns query=left,document=right", '{"left": "a", "right": "b"}\n'),
    hub("[0]: column 'pos' must hold texts or whole numbers, but holds struct<text: string>",
        '{"query": "a", "pos": {"text": "b"}}\n'),
    hub(": has no pairs with a text on both sides", '{"query": "a", "pos": [" "]}\n'),
    Bad("train hf:pairs:dev --model model --out run", "hf:pairs:dev: has no split 'dev' (it has: train)",
        write("pairs/train.jsonl", '{"query": "a", "pos": ["b"]}\n')),
    Bad("train hf:data/qrels --model model --out run",
        matching(r"hf:data/qrels, train: holds ids of queries \('query-id'\) and not their texts; .*")),
]  # fmt: skip

ROWS = [*CORPORA, *JUDGEMENTS, *FILES, *PUBLISHED]
