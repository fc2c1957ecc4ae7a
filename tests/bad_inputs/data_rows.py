"""Bad BEIR folders: corpus, queries, qrels, and what stands in the place of a file; names of published data sets."""

from __future__ import annotations

from pathlib import Path

from bad_inputs.table import Bad, Make, cut, link, make_folder, matching, pipe, remove, table, write

EVALUATE = "evaluate data --model model"
PASS = (
    "pass a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a table of pairs (.csv, .tsv, .jsonl, .parquet, .arrow, "
    "or a folder of these), a .jsonl file or a folder of FlagEmbedding or Tevatron, example:faq, python:PACKAGE, "
    "irds:ID, hf:OWNER/NAME, --pairs FILE or paper:NAME"
)
CORPUS, QRELS, TEST = "data/corpus.jsonl:3: ", "data/qrels/test.tsv:2: ", "data/qrels/test.tsv"
HEADER = "query-id\tcorpus-id\tscore\n"
NOT_UTF8 = "not UTF-8; give the encoding with --encoding, such as cp1252 (Windows) or utf-16"
NO_BEIR = "data: not a BEIR folder:"
NO_QRELS = f"{NO_BEIR} qrels/ has no .tsv file, such as qrels/train.tsv"
COUNTS = "; pass counts, such as clicks, as weights: --columns weight=COLUMN"


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


CORPORA = [
    *table(EVALUATE, """
{oops => not JSON (Expecting property name enclosed in double quotes at column 2): {given}
\xa0 => not JSON (Expecting value at column 1): {given}
{} {} => not JSON (Extra data at column 4): {given}
{"_id": "x", "text": "cut \\ud83d"} => holds half a character ('\\ud83d'); remove it: {given}
{"_id": "x", "text": "a\tb"} => not JSON (Invalid control character at column 24): {given}
[1] => must be a JSON object, got [1]
{} => column '_id' must not be empty
{"_id": "x", "text": true} => column 'text' must be a text or a number, got True
{"_id": "x", "title": ["a"], "text": "b"} => column 'title' must be a text or a number, got ['a']
{"_id": " \\u3000", "text": "a"} => column '_id' must not be empty
{"_id": null, "text": "a"} => column '_id' must not be empty
{"_id": "d0", "text": "a"} => duplicate id 'd0'; first seen at data/corpus.jsonl:1, and ids must be unique
    """, corpus, CORPUS),
    *(
        Bad(EVALUATE, f"{CORPUS}column '_id' must not contain a tab, a line break or another control character, "
            f"got 'a{seen}'", corpus(f'{{"_id": "a{escape}", "text": "b"}}'))
        for escape, seen in (("\\t", "\\t"), ("\\n", "\\n"), ("\\u2028", "\\u2028"), ("\\u001b[31m", "\\x1b[31m"))
    ),
    Bad(EVALUATE, f"{CORPUS}byte 0xe9 (character 26) is {NOT_UTF8}", corpus(b'{"_id": "x", "text": "caf\xe9"}')),
]  # fmt: skip

JUDGEMENTS = [
    *(
        Bad(EVALUATE, f"{QRELS}column 'score' must be a number, got {grade!r}",
            judgement(f"test0\td0\t{grade}"))
        for grade in ("1_0", "١", "0x1", "high", '"1"', "-")
    ),
    *table(EVALUATE, """
test0\td0\t4294967297 => grade must be between -1000 and 1000, got 4.29497e+09{COUNTS}
test0\td0\t => column 'score' is missing
test0\td0 => must have 3 columns ('query-id', 'corpus-id', 'score'), got 2: 'test0\\td0'
\t => must have 3 columns ('query-id', 'corpus-id', 'score'), got 2: '\\t'
nobody\td0\t1 => query 'nobody' is not an id in the table of queries; add it to the table, or remove its pairs
\x1b]0;x\x07\td0\t1 => query '\\x1b]0;x\\x07' is not an id in the table of queries; add it to the table, or
    remove its pairs
test0 \td0\t1 => query 'test0 ' is not an id in the table of queries; add it to the table, or remove its pairs
\td0\t1 => column 'query-id' must not be empty; fill it or remove the row
    """.replace("{COUNTS}", COUNTS), judgement, QRELS),
    Bad(EVALUATE, f"{QRELS}column 'score' must be a finite number, got inf",
        judgement(f"test0\td0\t{'9' * 5000}")),
    Bad(EVALUATE, f"{QRELS}byte 0xe9 (character 8) is {NOT_UTF8}", judgement(b"test0\td\xe9\t1")),
    Bad(EVALUATE, f"{TEST}: OPERA recognises no column for the query and the document; the columns are 'test0', 'd0', "
        "'1'; choose some, as in --columns query=test0,document=d0; if the file has no header: --columns "
        "query=1,document=2", put(TEST, 1, "test0\td0\t1")),
    Bad(EVALUATE, f"{TEST}: is empty; it must have at least one row", write(TEST, "")),
    Bad(EVALUATE, "data: has no split 'test'; pass --split train", write(TEST, HEADER)),
    *(
        Bad(EVALUATE, f"{QRELS}a relevant pair has a query or document without a text; add it or remove the pair",
            write(TEST, HEADER + "test0\td39\t1\n"), put(f"data/{file}", line, json))
        for file, line, json in (
            ("corpus.jsonl", 40, '{"_id": "d39", "text": " \\n\\u2003"}'),
            ("queries.jsonl", 13, '{"_id": "test0", "text": null}'),
        )
    ),
]  # fmt: skip

FILES = [
    *(
        Bad(EVALUATE, f"{NO_BEIR} {name} is missing", remove(f"data/{name}"))
        for name in ("corpus.jsonl", "queries.jsonl", "qrels")
    ),
    Bad(EVALUATE, NO_QRELS, remove("data/qrels"), write("data/qrels/._test.tsv", "")),
    Bad(EVALUATE, f"{TEST}: has the same split as TEST.tsv; keep one of the two files",
        write("data/qrels/TEST.tsv", "")),
    Bad(EVALUATE, "data/qrels: the name of a split must not contain a tab, a line break or another control character, "
        "got 'a\\nb'", write("data/qrels/a\nb.tsv", "")),
    Bad(EVALUATE, "data/corpus.jsonl: is empty; it must have at least one row", write("data/corpus.jsonl", "\n \n")),
    Bad(EVALUATE, f"data/corpus.jsonl:1: {NOT_UTF8}", to_utf16("data/corpus.jsonl")),
    Bad(EVALUATE, "data/corpus.jsonl:1: not JSON (Expecting ':' delimiter at column 41): "
        '\'{"_id": "d0", "title": "common0", "text"\'', cut("data/corpus.jsonl", 40)),
    Bad("evaluate empty --model model", "empty: has no table (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, "
        ".feather)", make_folder("empty")),
    *(
        Bad(EVALUATE, f"data/{name}: cannot be read ({reason})", make(f"data/{name}"))
        for name in ("corpus.jsonl", "qrels/test.tsv")
        for reason, make in (
            ("it is a named pipe", pipe),
            ("it is a device", lambda name: link(name, "/dev/zero")),
            ("No such file or directory", lambda name: link(name, "nowhere")),
            ("Too many levels of symbolic links", lambda name: link(name, Path(name).name)),
        )
    ),
    Bad("evaluate p.jsonl --model model", f"p.jsonl: is a named pipe; {PASS}", pipe("p.jsonl")),
    Bad("evaluate a.xls --model model", f"a.xls: not a kind of data that OPERA reads; {PASS}", write("a.xls", "a,b\n")),
    Bad("evaluate away --model model", f"away: no such file or folder; {PASS}", link("away", "nowhere")),
]  # fmt: skip


def hub(message: str, line: str) -> Bad:
    """A row whose data is a folder laid out like one of the hub."""
    return Bad("train hf:pairs --model model --out run", f"hf:pairs, train{message}", write("pairs/train.jsonl", line))


PUBLISHED = [
    *table("evaluate --model model", """
irds: => irds:: must be an id of ir_datasets, such as irds:beir/nfcorpus
irds:beir/fiqua => irds:beir/fiqua: ir_datasets has no such data set; did you mean 'beir/fiqa'?
irds:tripclick/logs => irds:tripclick/logs: ir_datasets has no judgements for it
memory:pairs => memory:pairs: these data were in a program's memory, such as a DataFrame; pass them
    again, or save them to a file and pass the file
example: => example:: must be example:faq
hf:/ => hf:/: must be the folder of one data set
'hf:a b/c' => hf:a b/c: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder; :SPLIT may follow
hf:a/\u202eb => hf:a/\\u202eb: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder; :SPLIT may follow
    """),
    Bad("evaluate hf:.pairs --model model", "hf:.pairs: has no files, or only hidden files",
        write(".pairs/.train.jsonl", "{}")),
    hub(": OPERA recognises no column for the query and the document; the columns are 'left', 'right'; choose some, "
        "as in --columns query=left,document=right", '{"left": "a", "right": "b"}\n'),
    hub("[0]: column 'pos' must contain texts or whole numbers, but its type is struct<text: string>",
        '{"query": "a", "pos": {"text": "b"}}\n'),
    hub(": has no pairs with a text on both sides", '{"query": "a", "pos": [" "]}\n'),
    Bad("train hf:pairs:dev --model model --out run", "hf:pairs:dev: has no split 'dev' (it has: train)",
        write("pairs/train.jsonl", '{"query": "a", "pos": ["b"]}\n')),
    Bad("train hf:data/qrels --model model --out run",
        matching(r"hf:data/qrels, train: has ids of queries \('query-id'\) but not their texts; .*")),
]  # fmt: skip

ROWS = [*CORPORA, *JUDGEMENTS, *FILES, *PUBLISHED]
