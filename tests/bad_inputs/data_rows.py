"""Bad BEIR folders: corpus, queries, qrels, and what stands in the place of a file."""

from __future__ import annotations

from pathlib import Path

from bad_inputs.table import Bad, Make, cut, link, make_folder, pipe, remove, write

EVALUATE = "evaluate data --model model"
PAIR = "a relevant pair (query 'test0', document 'd39'), but"
PASS = (
    "pass a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a .jsonl file or a folder of FlagEmbedding or Tevatron, "
    "a table of pairs (.csv, .tsv, .jsonl, .parquet, .arrow, or a folder of these), "
    "python:PACKAGE, paper:NAME, irds:ID, hf:OWNER/NAME or --pairs FILE"
)


def corpus(name: str, line: str | bytes, message: str) -> Bad:
    """A row whose third document is another line."""
    return Bad(f"corpus: {name}", EVALUATE, f"data/corpus.jsonl:3: {message}", put("data/corpus.jsonl", 3, line))


def shown_json(name: str, line: str, message: str) -> Bad:
    """The same, where the message shows the line."""
    return corpus(name, line, f"{message}: {line!r}")


def qrels(name: str, line: str | bytes, message: str, number: int = 2) -> Bad:
    """A row one of whose judgements is another line."""
    path = "data/qrels/test.tsv"
    return Bad(f"qrels: {name}", EVALUATE, f"{path}:{number}: {message}", put(path, number, line))


def header(name: str, line: str) -> Bad:
    """A row whose qrels have another header."""
    return qrels(f"header: {name}", line, f"the header must be {HEADER}, got {line!r}", number=1)


def folder(name: str, message: str, *make: Make) -> Bad:
    """A row whose data folder is changed otherwise."""
    return Bad(f"folder: {name}", EVALUATE, message, *make)


def put(name: str, number: int, line: str | bytes) -> Make:
    """Put bytes in place of a line."""

    def make(home: Path) -> None:
        lines = (home / name).read_bytes().split(b"\n")
        lines[number - 1] = line.encode() if isinstance(line, str) else line
        (home / name).write_bytes(b"\n".join(lines))

    return make


def to_utf16(name: str) -> Make:
    """Write a file anew in another encoding."""
    return lambda home: (home / name).write_text((home / name).read_text(), encoding="utf-16")


DEEP = "[" * 2000 + "]" * 2000
UNKNOWN = "(known: _id, text, title, metadata)"
TAB = "\t"
HEADER = "query-id TAB corpus-id TAB score"
SHOWN_9S = "'" + "9" * 49 + "…" + "9" * 48 + "'"
WIDTH = "must have 3 columns ('query-id', 'corpus-id', 'score')"
ADD = "add it there, or remove such pairs"
DIGITS = "score must be a whole number in plain digits, got"
RANGE = "score must lie between -1000 and 1000, got"
NOT_UTF8 = "not UTF-8; convert the file to UTF-8"
UTF16 = "not UTF-8; convert the file to UTF-8"
NO_BEIR = "data: not a BEIR folder:"

CORPUS = [
    shown_json("no JSON", "{oops", "not JSON (Expecting property name enclosed in double quotes at column 2)"),
    corpus("a list", "[1]", "must be a JSON object, got [1]"),
    corpus("a number", "7", "must be a JSON object, got 7"),
    shown_json("a line of tabs", "\t\t", "not JSON (Expecting value at column 3)"),
    shown_json("a form feed alone", "\f", "not JSON (Expecting value at column 1)"),
    shown_json("a no-break space alone", "\u00a0", "not JSON (Expecting value at column 1)"),
    shown_json("two objects in a line", "{} {}", "not JSON (Extra data at column 4)"),
    shown_json("a comma at the end", '{"_id": "x", "text": "y"},', "not JSON (Extra data at column 26)"),
    shown_json(
        "single quotes", "{'_id': 'x'}", "not JSON (Expecting property name enclosed in double quotes at column 2)"
    ),
    corpus("an unknown column", '{"_id": "x", "body": "y", "text": "z"}', f"unknown column 'body' {UNKNOWN}"),
    corpus("a misspelt column", '{"_id": "x", "txt": "y"}', f"unknown column 'txt'; did you mean 'text'? {UNKNOWN}"),
    corpus("a column in capitals", '{"_ID": "x", "text": "y"}', f"unknown column '_ID' {UNKNOWN}"),
    corpus("an escape in a column", '{"\\u001b[2J": 1}', f"unknown column '\\x1b[2J' {UNKNOWN}"),
    corpus("no text", '{"_id": "x"}', "column 'text' is missing (it has: _id)"),
    corpus("no columns", "{}", "column '_id' is missing (it has: none)"),
    corpus("a number as text", '{"_id": "x", "text": 1}', "column 'text' must be a string, got 1"),
    corpus(
        "a list as title", '{"_id": "x", "title": ["a"], "text": "b"}', "column 'title' must be a string, got ['a']"
    ),
    corpus("a number as id", '{"_id": 7, "text": "a"}', "column '_id' must be a string, got 7"),
    corpus("true as id", '{"_id": true, "text": "a"}', "column '_id' must be a string, got True"),
    corpus("an empty id", '{"_id": "", "text": "a"}', "column '_id' must not be empty"),
    corpus("a blank id", '{"_id": " \\u3000", "text": "a"}', "column '_id' must not be empty"),
    corpus("a null id", '{"_id": null, "text": "a"}', "column '_id' must not be empty"),
    *[
        corpus(
            f"{what} in an id",
            f'{{"_id": "a{escape}", "text": "b"}}',
            f"column '_id' must not hold a tab, a line break or another control character, got 'a{seen}'",
        )
        for what, escape, seen in (
            ("a tab", "\\t", "\\t"),
            ("a line break at the end", "\\n", "\\n"),
            ("a carriage return", "\\r", "\\r"),
            ("a next line", "\\u0085", "\\x85"),
            ("a line separator", "\\u2028", "\\u2028"),
            ("a paragraph separator", "\\u2029b", "\\u2029b"),
            ("a vertical tab", "\\u000b", "\\x0b"),
            ("a NUL", "\\u0000", "\\x00"),
            ("an escape", "\\u001b[31m", "\\x1b[31m"),
            ("a C1 control", "\\u009b2J", "\\x9b2J"),
            ("a delete", "\\u007f", "\\x7f"),
        )
    ],
    corpus(
        "an id twice",
        '{"_id": "d0", "text": "a"}',
        "duplicate id 'd0', first seen at data/corpus.jsonl:1; ids must be unique",
    ),
    shown_json("a key twice", '{"_id": "x", "_id": "y", "text": "a"}', "the key '_id' occurs twice"),
    shown_json(
        "a key twice in metadata", '{"_id": "x", "text": "a", "metadata": {"k": 1, "k": 2}}', "the key 'k' occurs twice"
    ),
    shown_json("NaN", '{"_id": "x", "metadata": NaN}', "holds NaN, which is no number of JSON"),
    shown_json("-Infinity", '{"_id": "x", "metadata": [-Infinity]}', "holds -Infinity, which is no number of JSON"),
    shown_json("a number too large", '{"_id": "x", "metadata": 1e999}', "holds the number 1e999, which is too large"),
    corpus("5,000 digits", "9" * 5000, f"holds a whole number of 5,000 digits; at most 1,000 are read: {SHOWN_9S}"),
    corpus("2,000 lists", DEEP, f"nested more than 100 deep: '{'[' * 49}…{']' * 48}'"),
    shown_json(
        "half a character", '{"_id": "x", "text": "cut \\ud83d"}', "holds half a character ('\\ud83d'); remove it"
    ),
    shown_json(
        "half a character in metadata", '{"metadata": "\\udc00"}', "holds half a character ('\\udc00'); remove it"
    ),
    corpus(
        "half a character in UTF-8",
        b'"\xed\xa0\xbd"',
        NOT_UTF8,
    ),
    corpus(
        "Latin-1",
        b'{"_id": "x", "text": "caf\xe9"}',
        NOT_UTF8,
    ),
    shown_json(
        "a tab within a text", '{"_id": "x", "text": "a\tb"}', "not JSON (Invalid control character at column 24)"
    ),
    shown_json(
        "a NUL within a text", '{"_id": "x", "text": "a\0b"}', "not JSON (Invalid control character at column 24)"
    ),
]

GRADES = {
    "a space before": " 1", "a space after": "1 ", "a plus": "+1", "an underscore": "1_0", "of another script": "١",
    "full width": "１", "half a grade": "0.5", "a whole float": "1.0", "an exponent": "1e0", "hexadecimal": "0x1",
    "a word": "high", "empty": "", "quotes": '"1"', "a minus alone": "-", "two minuses": "--1",
    "a minus of another kind": "−1", "a superscript": "²",
}  # fmt: skip

QRELS = [
    *[qrels(f"grade: {name}", f"test0\td0\t{grade}", f"{DIGITS} {grade!r}") for name, grade in GRADES.items()],
    qrels("grade: a carriage return", b"test0\td0\t1\x0b", f"{DIGITS} '1\\x0b'"),
    qrels("grade: too large", "test0\td0\t4294967297", f"{RANGE} '4294967297'"),
    qrels("grade: too small", "test0\td0\t-1001", f"{RANGE} -1001"),
    qrels("grade: 5,000 digits", f"test0\td0\t{'9' * 5000}", f"{RANGE} {SHOWN_9S}"),
    header("another name", "query-id\tcorpus-id\tgrade"),
    header("none", "test0\td0\t1"),
    header("spaces", "query-id corpus-id score"),
    header("commas", "query-id,corpus-id,score"),
    header("an escape", "query-id\tcorpus-id\t\x1b[2J"),
    qrels("columns: two", "test0\td0", f"{WIDTH}, got 2: 'test0\\td0'"),
    qrels("columns: four, as TREC has", "test0\t0\td0\t1", f"{WIDTH}, got 4: 'test0\\t0\\td0\\t1'"),
    qrels("columns: a line of tabs", "\t\t", f"{DIGITS} ''"),
    qrels("columns: one tab", "\t", f"{WIDTH}, got 2: '\\t'"),
    qrels("ids: an unknown query", "nobody\td0\t1", f"query 'nobody' is no id in the table of queries; {ADD}"),
    qrels("ids: an unknown document", "test0\tdX\t1", f"document 'dX' is no id in the table of documents; {ADD}"),
    qrels("ids: an escape", "\x1b]0;x\x07\td0\t1", f"query '\\x1b]0;x\\x07' is no id in the table of queries; {ADD}"),
    qrels("ids: a space after", "test0 \td0\t1", f"query 'test0 ' is no id in the table of queries; {ADD}"),
    qrels("ids: empty", "\td0\t1", f"query '' is no id in the table of queries; {ADD}"),
    qrels("Latin-1", b"test0\td\xe9\t1", NOT_UTF8),
    Bad(
        "qrels: empty",
        EVALUATE,
        "data/qrels/test.tsv: is empty; it must have at least one row",
        write("data/qrels/test.tsv", ""),
    ),
    Bad(
        "qrels: a header alone",
        EVALUATE,
        "data/qrels/test.tsv: has no judgements",
        write("data/qrels/test.tsv", "query-id\tcorpus-id\tscore\n"),
    ),
    Bad(
        "qrels: two grades",
        EVALUATE,
        "data/qrels/dev.tsv:3: grade 2 for a pair that data/qrels/dev.tsv:2 gives grade 1; a pair has one grade",
        write("data/qrels/dev.tsv", "query-id\tcorpus-id\tscore\ntest0\td0\t1\ntest0\td0\t2\n"),
    ),
    Bad("qrels: UTF-16", EVALUATE, f"data/qrels/test.tsv:1: {UTF16}", to_utf16("data/qrels/test.tsv")),
]

FILES = [
    folder("no corpus", f"{NO_BEIR} corpus.jsonl is missing", remove("data/corpus.jsonl")),
    folder("no queries", f"{NO_BEIR} queries.jsonl is missing", remove("data/queries.jsonl")),
    folder("no qrels", f"{NO_BEIR} qrels/ holds no .tsv file such as qrels/train.tsv", remove("data/qrels")),
    folder("qrels is a file", f"{NO_BEIR} qrels must be a folder", remove("data/qrels"), write("data/qrels", "")),
    folder(
        "hidden qrels alone",
        f"{NO_BEIR} qrels/ holds no .tsv file such as qrels/train.tsv",
        remove("data/qrels"),
        write("data/qrels/._test.tsv", ""),
    ),
    folder(
        "one split twice",
        "data/qrels/test.tsv: names the same split as TEST.tsv; keep one of the two",
        write("data/qrels/TEST.tsv", ""),
    ),
    folder(
        "a split with a line break",
        "data/qrels: the name of a split must not hold a tab, a line break or another control character, got 'a\\nb'",
        write("data/qrels/a\nb.tsv", ""),
    ),
    folder(
        "an empty corpus",
        "data/corpus.jsonl: is empty; it must have at least one row",
        write("data/corpus.jsonl", "\n \n"),
    ),
    folder("UTF-16", f"data/corpus.jsonl:1: {UTF16}", to_utf16("data/corpus.jsonl")),
    folder(
        "a compressed corpus",
        "data/corpus.jsonl:1: not UTF-8; convert the file to UTF-8",
        write("data/corpus.jsonl", b"\x1f\x8b\x08\0\0"),
    ),
    folder(
        "a cut line",
        "data/corpus.jsonl:1: not JSON (Expecting ':' delimiter at column 41): "
        '\'{"_id": "d0", "title": "common0", "text"\'',
        cut("data/corpus.jsonl", 40),
    ),
    Bad(
        "folder: no data at all",
        "evaluate empty --model model",
        "empty: not a BEIR folder: corpus.jsonl is missing",
        make_folder("empty"),
    ),
    *[
        Bad(f"folder: {name} is a {what}", EVALUATE, f"data/{name}: cannot be read ({reason})", make(f"data/{name}"))
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
        for what, reason, make in (
            ("pipe", "it is a named pipe", pipe),
            ("folder", "it is a folder", make_folder),
            ("device", "it is a device", lambda name: link(name, "/dev/zero")),
            ("link to nothing", "No such file or directory", lambda name: link(name, "nowhere")),
            ("link to itself", "Too many levels of symbolic links", lambda name: link(name, Path(name).name)),
        )
    ],
    Bad("source: a pipe", "evaluate p.jsonl --model model", f"p.jsonl: is a named pipe; {PASS}", pipe("p.jsonl")),
    Bad("source: a device", "evaluate /dev/null --model model", f"/dev/null: is a device; {PASS}"),
    Bad(
        "source: another kind of file",
        "evaluate a.xls --model model",
        f"a.xls: not a kind of data that OPERA reads; {PASS}",
        write("a.xls", "a,b\n"),
    ),
    Bad(
        "source: a link to nothing",
        "evaluate away --model model",
        f"away: no such file or folder; {PASS}",
        link("away", "nowhere"),
    ),
    Bad(
        "source: nothing of that kind",
        "evaluate beir:scifact --model model",
        f"beir:scifact: no such file or folder; {PASS}",
    ),
]

EMPTY = [
    folder(
        f"{name} of a relevant pair",
        f"data/qrels/test.tsv:2: {PAIR} the {what} empty; give it a text or remove the pair",
        write("data/qrels/test.tsv", f"{HEADER.replace(' TAB ', TAB)}\ntest0\td39\t1\n"),
        put(f"data/{file}", line, json),
    )
    for name, what, file, line, json in (
        ("a blank text", "document's title and text are", "corpus.jsonl", 40, '{"_id": "d39", "text": " \\n\\u2003"}'),
        ("a null text", "document's title and text are", "corpus.jsonl", 40, '{"_id": "d39", "text": null}'),
        ("a blank query", "query's text is", "queries.jsonl", 13, '{"_id": "test0", "text": "\\t"}'),
    )
]

ROWS = [*CORPUS, *QRELS, *FILES, *EMPTY]
