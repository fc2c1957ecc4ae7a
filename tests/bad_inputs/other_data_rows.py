"""Bad data of other kinds: FlagEmbedding files, Python packages, and vectors from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bad_inputs.table import Bad, Make, cut, edit, make_folder, matching, pipe, remove, write


def pairs(name: str, line: str, message: str) -> Bad:
    """A row of a FlagEmbedding file with one good line and another one."""
    content = '{"query": "q", "pos": ["a"]}\n' + line + "\n"
    command = "train pairs.jsonl --model model --out run"
    return Bad(f"pairs: {name}", command, f"pairs.jsonl:2: {message}", write("pairs.jsonl", content))


def shown_pairs(name: str, line: str, message: str) -> Bad:
    """The same, where the message shows the line."""
    return pairs(name, line, f"{message}: {line!r}")


def package(name: str, source: str, message: str) -> Bad:
    """A row whose data is source code."""
    return Bad(f"package: {name}", ["evaluate", f"python:{source}", "--model", "model"], message)


def vectors(name: str, message: str, *make: Make) -> Bad:
    """A row that trains an adapter on vectors from files; the document vectors are good."""
    command = "train data --query-vectors q.npy --document-vectors d.npy --out run"
    return Bad(f"vectors: {name}", command, message, good_vectors, *make)


def good_vectors(folder: Path) -> None:
    """Write vectors of all queries and documents."""
    for name, ids in (("q", "queries.jsonl"), ("d", "corpus.jsonl")):
        names = [line.split('"')[3] for line in (folder / "data" / ids).read_text().splitlines()]
        np.save(folder / f"{name}.npy", np.eye(len(names), 8, dtype=np.float32) + 1)
        (folder / f"{name}.txt").write_text("\n".join(names) + "\n")


def change_vectors(change: Callable[[np.ndarray], np.ndarray]) -> Make:
    """Save changed query vectors."""
    return lambda folder: np.save(folder / "q.npy", change(np.load(folder / "q.npy")), allow_pickle=True)


KNOWN = "(known: query, pos, neg, pos_scores, neg_scores, prompt, type, id)"
NO_NUMBER = "q.npy: the vector of 'train0' is zero, too long, or holds a value that is no number"
NO_ARRAY = "q.npy: is not a NumPy array that can be read"

PAIRS = [
    shown_pairs("no JSON", "{", "not JSON (Expecting property name enclosed in double quotes at column 2)"),
    pairs("no pos", '{"query": "x"}', "column 'pos' is missing (it has: query)"),
    pairs("an empty pos", '{"query": "x", "pos": []}', "column 'pos' must hold at least one text"),
    pairs("a null pos", '{"query": "x", "pos": null}', "column 'pos' must hold at least one text"),
    *[
        pairs(
            f"{key}: {json}",
            f'{{"query": "x", {first}"{key}": {json}}}',
            f"column '{key}' must be a list of strings, got {seen}",
        )
        for key, first in (("pos", ""), ("neg", '"pos": ["a"], '))
        for json, seen in (
            ("0", "0"),
            ('""', "''"),
            ("false", "False"),
            ("{}", "{}"),
            ('"a"', "'a'"),
            ("[null]", "[None]"),
            ('["a", 1]', "['a', 1]"),
            ('[["a"]]', "[['a']]"),
        )
    ],
    pairs("an empty text", '{"query": "x", "pos": [""]}', "column 'pos' holds an empty text"),
    pairs("a blank query", '{"query": " ", "pos": ["a"]}', "column 'query' must not be empty"),
    pairs("a list as query", '{"query": ["x"], "pos": ["a"]}', "column 'query' must be a string, got ['x']"),
    pairs(
        "a misspelt column",
        '{"query": "x", "pos": ["a"], "negs": []}',
        f"unknown column 'negs'; did you mean 'neg'? {KNOWN}",
    ),
    pairs(
        "too many scores",
        '{"query": "x", "pos": ["a"], "pos_scores": [1, 2]}',
        "column 'pos_scores' has 2 numbers for the 1 texts of 'pos'; there must be one for each",
    ),
    pairs(
        "scores of nothing",
        '{"query": "x", "pos": ["a"], "neg_scores": [1]}',
        "column 'neg_scores' has 1 numbers for the 0 texts of 'neg'; there must be one for each",
    ),
    pairs(
        "true as a score",
        '{"query": "x", "pos": ["a"], "pos_scores": [true]}',
        "column 'pos_scores' must be a list of numbers, got [True]",
    ),
    pairs(
        "scores as text",
        '{"query": "x", "pos": ["a"], "pos_scores": ["1"]}',
        "column 'pos_scores' must be a list of numbers, got ['1']",
    ),
    shown_pairs("a key twice", '{"query": "x", "pos": ["a"], "pos": ["b"]}', "the key 'pos' occurs twice"),
    shown_pairs(
        "half a character", '{"query": "x", "pos": ["\\ud83d"]}', "holds half a character ('\\ud83d'); remove it"
    ),
    Bad(
        "pairs: nothing",
        "train pairs.jsonl --model model --out run",
        "pairs.jsonl: has no pairs",
        write("pairs.jsonl", "\n"),
    ),
]

NOT_INSTALLED = "no installed package of that name has its source in files (use its import name)"
PACKAGES = [
    *[
        package(
            f"{name!r} as name",
            name,
            f"python:PACKAGE: must be the import name of a package, such as json, got {name!r}",
        )
        for name in ("", ".", "..", "a..b", "json.", ".json", "a b", "a-b", "json/decoder", "../etc", "a;b")
    ],
    package("__main__", "__main__", f"python:__main__: {NOT_INSTALLED}"),
    package(
        "none of that name",
        "no_such_package",
        f"python:no_such_package: {NOT_INSTALLED}",
    ),
    package(
        "no part of that name",
        "json.decoder.none",
        f"python:json.decoder.none: {NOT_INSTALLED}",
    ),
    package("built in", "sys", f"python:sys: {NOT_INSTALLED}"),
    package("compiled", "math", f"python:math: {NOT_INSTALLED}"),
    package(
        "one module",
        "json.decoder",
        "python:json.decoder: found 6 documented objects in 1 modules; at least 2 modules are needed, because train "
        "and test objects come from different modules",
    ),
]

VECTORS = [
    Bad(
        "vectors: another suffix",
        "train data --query-vectors q.csv --document-vectors q.csv --out run",
        "q.csv: must end in .npy or .parquet; the suffix decides the format",
    ),
    vectors("no ids", "q.npy: needs q.txt beside it, with the id of each row, one per line", remove("q.txt")),
    vectors("too few ids", "q.npy: has 18 rows, but q.txt has 1 ids", write("q.txt", "test0\n")),
    vectors("an id twice", "q.npy: has two vectors for the id 'test0'", edit("q.txt", 1, "test0")),
    vectors(
        "an id missing",
        "q.npy: has no vector for query 'train0'; 1 of 18 have none, and each needs one",
        edit("q.txt", 1, "other"),
    ),
    vectors("NaN", NO_NUMBER, change_vectors(lambda v: v * np.float32("nan"))),
    vectors(
        "infinity",
        NO_NUMBER,
        change_vectors(lambda v: v * np.float32("inf")),
    ),
    vectors(
        "zeros",
        NO_NUMBER,
        change_vectors(lambda v: v * 0),
    ),
    vectors(
        "whole numbers",
        "q.npy: must hold an array [n, d] of floats, got [18, 8] of int64",
        change_vectors(lambda v: v.astype(int)),
    ),
    vectors(
        "one axis", "q.npy: must hold an array [n, d] of floats, got [18] of float32", change_vectors(lambda v: v[:, 0])
    ),
    vectors(
        "of another length",
        "q.npy has vectors of length 4, d.npy of 8: both must come from one model",
        change_vectors(lambda v: v[:, :4]),
    ),
    vectors(
        "objects, which are pickles",
        f"{NO_ARRAY} (Array can't be memory-mapped: Python objects in dtype.)",
        change_vectors(lambda v: v.astype(object)),
    ),
    vectors(
        "text",
        matching(NO_ARRAY + r" \(the magic string is not correct.*\)"),
        write("q.npy", "these are no vectors"),
    ),
    vectors(
        "a cut file",
        matching(NO_ARRAY + r" \(mmap length is greater than file size\)"),
        cut("q.npy", 200),
    ),
    vectors("an empty file", matching(NO_ARRAY + r" \(EOF.*\)"), write("q.npy", "")),
    vectors("a pipe", "q.npy: cannot be read (it is a named pipe)", pipe("q.npy")),
    vectors("a folder", "q.npy: cannot be read (it is a folder)", make_folder("q.npy")),
    vectors("not there", "q.npy: cannot be read (No such file or directory)", remove("q.npy")),
    vectors("ids in a pipe", "q.txt: cannot be read (it is a named pipe)", pipe("q.txt")),
    vectors(
        "ids in Latin-1",
        "q.txt:1: not UTF-8; convert the file to UTF-8",
        write("q.txt", b"caf\xe9"),
    ),
]


def trainer_files(name: str, message: str, *make: Make) -> Bad:
    """A row of a folder with FlagEmbedding's evaluation files, which are good, and what the row makes."""
    good = {
        "corpus.jsonl": '{"id": "x", "text": "a"}\n',
        "test_queries.jsonl": '{"id": "t", "text": "asked"}\n',
        "test_qrels.jsonl": '{"qid": "t", "docid": "x", "relevance": 1}\n',
    }
    files = [write(f"mine/{file}", content) for file, content in good.items()]
    return Bad(f"trainer files: {name}", "evaluate mine --model model", message, make_folder("mine"), *files, *make)


TEVATRON = '{"query_id": "1", "query": "q", "positive_passages": '
TRAINER_FILES = [
    trainer_files(
        "a judgement of no document",
        "mine/test_qrels.jsonl:1: document 'y' has no text in the files that were read",
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "y", "relevance": 1}\n'),
    ),
    trainer_files(
        "a judgement of an id that OPERA made up",
        "mine/test_qrels.jsonl:2: document 'd1' has no text in the files that were read",
        write("mine/train.jsonl", '{"query": "q", "pos": ["b"]}\n'),
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "x"}\n{"qid": "t", "docid": "d1"}\n'),
    ),
    trainer_files(
        "two grades of a pair",
        "mine/test_qrels.jsonl:2: grade 0 for a pair that mine/test_qrels.jsonl:1 gives grade 1; a pair has one grade",
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "x"}\n{"qid": "t", "docid": "x", "relevance": 0}\n'),
    ),
    trainer_files(
        "a first record without all columns",
        "mine/dev.jsonl:2: has the columns of a file of FlagEmbedding (query, pos), but the first record lacks some; "
        "give every record the same columns, null where it has no value, or move the file elsewhere",
        write("mine/dev.jsonl", '{"query": "q"}\n{"query": "r", "pos": ["a"]}\n'),
    ),
    trainer_files(
        "two texts of an id",
        "mine/corpus.jsonl:2: document 'x' has another text than before; give it its own id",
        write("mine/corpus.jsonl", '{"id": "x", "text": "a"}\n{"id": "x", "text": "b"}\n'),
    ),
    trainer_files(
        "half a judgement",
        "mine/test_qrels.jsonl:1: score must be a whole number, got 0.5",
        write("mine/test_qrels.jsonl", '{"qid": "t", "docid": "x", "relevance": 0.5}\n'),
    ),
    trainer_files(
        "a passage that is none",
        "mine/train.jsonl:1: column 'positive_passages' must be a list of objects, got ['x']",
        write("mine/train.jsonl", TEVATRON + '["x"]}\n'),
    ),
    trainer_files(
        "a passage without a text",
        "mine/train.jsonl:1: column 'positive_passages': 'text' must be a string, got None",
        write("mine/train.jsonl", TEVATRON + '[{"docid": "x"}]}\n'),
    ),
    trainer_files(
        "a corpus file that is not there",
        "mine/train.jsonl:1: document 'z' has no text in the files that were read",
        write("mine/train.jsonl", '{"query_id": "1", "query": "q", "positive_document_ids": ["z"]}\n'),
    ),
    Bad(
        "trainer files: a pattern of nothing",
        "evaluate none*.jsonl --model model",
        matching(r"none\*\.jsonl: no such file or folder; pass .*"),
    ),
]

ROWS = [*PAIRS, *PACKAGES, *VECTORS, *TRAINER_FILES]
