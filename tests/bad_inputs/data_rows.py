"""Bad BEIR folders: corpus, queries, qrels, and what stands in the place of a file; names of published data sets."""

from bad_inputs.table import Bad, Make, edit, link, pipe, remove, table, write

EVALUATE = "evaluate data --model model"
PASS = (
    "pass a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a table of pairs (.csv, .tsv, .jsonl, .parquet, .arrow, "
    ".xlsx, or a folder of these), a file or a folder of FlagEmbedding, Tevatron or DPR, example:faq, python:PACKAGE, "
    "irds:ID, hf:OWNER/NAME, paper:NAME or --pairs FILE"
)
CORPUS, QRELS, TEST = "data/corpus.jsonl:3: ", "data/qrels/test.tsv:2: ", "data/qrels/test.tsv"
HEADER = "query-id\tcorpus-id\tscore\n"
NOT_UTF8 = "not UTF-8; give the encoding with --encoding, such as cp1252 (Windows) or utf-16"
NO_BEIR = "data: not a BEIR folder:"
NO_QRELS = f"{NO_BEIR} qrels/ has no .tsv file, such as qrels/train.tsv"
COUNTS = "; pass counts, such as clicks, as weights: --columns weight=COLUMN"


def corpus(line: str | bytes) -> Make:
    """Put another line in place of the third document."""
    return edit("data/corpus.jsonl", 3, line)


def judgement(line: str) -> Make:
    """Put another line in place of the first judgement."""
    return edit(TEST, 2, line)


CORPORA = [
    *table(EVALUATE, """
{oops => not JSON (Expecting property name enclosed in double quotes at column 2): {given}
{"_id": "x", "text": "cut \\ud83d"} => contains half a character ('\\ud83d', a cut emoji); remove it: {given}
[1] => must be a JSON object, got [1]
{} => column '_id' must not be empty
{"_id": "x", "text": true} => column 'text' must be a text or a number, got True
{"_id": "d0", "text": "a"} => duplicate id 'd0'; first seen at data/corpus.jsonl:1, and ids must be unique
    """, corpus, CORPUS),
    *(
        Bad(EVALUATE, f"{CORPUS}column '_id' must not contain a tab, a line break or another control character, "
            f"got 'a{seen}'", corpus(f'{{"_id": "a{escape}", "text": "b"}}'))
        for escape, seen in (("\\t", "\\t"), ("\\u001b[31m", "\\x1b[31m"))
    ),
    Bad(EVALUATE, f"{CORPUS}byte 0xe9 (character 26) is {NOT_UTF8}", corpus(b'{"_id": "x", "text": "caf\xe9"}')),
]  # fmt: skip

JUDGEMENTS = [
    *table(EVALUATE, """
test0\td0\thigh => column 'score' must be a number, got 'high'
test0\td0\t1_0 => column 'score' must be a number, got '1_0'
test0\td0\t4294967297 => grade must be between -1000 and 1000, got 4.29497e+09{COUNTS}
nobody\td0\t1 => query 'nobody' is not an id in the table of queries; add it to the table, or remove its pairs
    """.replace("{COUNTS}", COUNTS), judgement, QRELS),
    Bad(EVALUATE, f"{TEST}: OPERA recognises no column for the query and the document; the columns are 'test0', 'd0', "
        "'1'; choose some, as in --columns query=test0,document=d0; if the file has no header: --columns "
        "query=1,document=2", edit(TEST, 1, "test0\td0\t1")),
    Bad(EVALUATE, f"{QRELS}a relevant pair has a query or document without a text; add it or remove the pair",
        write(TEST, HEADER + "test0\td39\t1\n"),
        edit("data/corpus.jsonl", 40, '{"_id": "d39", "text": " \\n\\u2003"}')),
]  # fmt: skip

FILES = [
    *(
        Bad(EVALUATE, f"{NO_BEIR} {name} is missing", remove(f"data/{name}"))
        for name in ("corpus.jsonl", "queries.jsonl", "qrels")
    ),
    Bad(EVALUATE, NO_QRELS, remove("data/qrels"), write("data/qrels/._test.tsv", "")),
    Bad(EVALUATE, f"data/corpus.jsonl:1: {NOT_UTF8}", write("data/corpus.jsonl", "{}".encode("utf-16"))),
    *(
        Bad(EVALUATE, f"data/corpus.jsonl: cannot be read ({reason})", make)
        for reason, make in (
            ("it is a named pipe", pipe("data/corpus.jsonl")),
            ("it is a device", link("data/corpus.jsonl", "/dev/zero")),
            ("No such file or directory", link("data/corpus.jsonl", "nowhere")),
        )
    ),
    Bad("evaluate a.xls --model model", f"a.xls: not a kind of data that OPERA reads; {PASS}", write("a.xls", "a,b\n")),
    Bad("evaluate away --model model", f"away: no such file or folder; {PASS}", link("away", "nowhere")),
]  # fmt: skip

PUBLISHED = [
    *table("evaluate --model model", """
irds:beir/fiqua => irds:beir/fiqua: ir_datasets has no judgements for it; did you mean 'beir/fiqa'?
memory:pairs => memory:pairs: these data were passed in memory, as a DataFrame is; pass them
    again, or save them to a file and pass the file
'hf:a b/c' => hf:a b/c: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder; add :SPLIT if wanted
    """),
    Bad("train hf:pairs --model model --out run", "hf:pairs, train: OPERA recognises no column for the "
        "query and the document; the columns are 'left', 'right'; choose some, as in --columns "
        "query=left,document=right", write("pairs/train.jsonl", '{"left": "a", "right": "b"}\n')),
]  # fmt: skip

ROWS = [*CORPORA, *JUDGEMENTS, *FILES, *PUBLISHED]
