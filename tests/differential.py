r"""Files whose columns, types, nulls and order change late, and readers that use nothing of OPERA's.

A table is a list of rows, a row a dictionary: what a row lacks, its format writes as it can. Each format has one
writer, and one reader of csv, json or pyarrow alone. ``table_data``, ``beir_data``, ``flagembedding_data`` and
``tevatron_data`` say what the rows mean, as docs/data.md has it and not as OPERA's code does.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from opera.data import RetrievalData

Row = dict[str, Any]
Text = tuple[str | None, str, str]  # id where it is kept, title, text
Pair = tuple[str, Text, Text]  # split, query, document


class WrongError(Exception):
    """The documentation calls this an error: OPERA must refuse it."""


@dataclass
class Seen:
    """What a data set says: sorted texts, grades and perhaps weights, and what train lines add."""

    documents: list[Text] = field(default_factory=list)
    queries: list[Text] = field(default_factory=list)
    pairs: dict[Pair, tuple[int, float | None]] = field(default_factory=dict)
    negatives: set[tuple[Text, Text]] = field(default_factory=set)
    scores: dict[tuple[Text, Text], list[float]] = field(default_factory=dict)
    prompt: str | None = None


# What may stand in a file.

PLAIN = ["first", "second", "third", "caf\u00e9 \U0001f600", "with \"quotes\" and 'marks'", "1", "a, b; c | d"]
ODD: list[Any] = [
    "", " ", "\u00a0", "\u2003", "First", "first ", " first", "cafe\u0301 \U0001f600", "1.0", "01", "+1", "1e0", "-1",
    "0", "0.5", "2.0", "1_0", "nan", "NaN", "inf", "None", "null", "true", "abc", "two\nlines", "cr\rlf\r\n", "a\tb",
    "u\u2028s\u0085x\u001cy", "\ufefffirst", "\u200bfirst", "'", '"', '""', 'a"b', "\\", "#", '["first"]', "test",
    "TRAIN ", "val", "d0", "q0", "d1", "query", "id", "text", "document",
    None, 0, 1, 2, -1, 7, 0.0, 1.0, 0.5, -0.5, 1e16, 1e22, 2**53 + 1, 2**63, -(2**63), 1000, 1001,
    True, False, [True], "a\0b", 1e39, 3e38, 20_001, 16_777_217,
    [], [None], ["first"], ["first", "second"], ["first", None], [""], ["first", "first"], [1], [0, 1], [0.5],
    {}, {"a": 1},
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, 2, -1, 0.5, 2.0, -0.5, 1000, 1001, "0", "1", "2.0", "1e0", " 1", "+1", "0x1", "", "nan", "1_0", None,
    True, False, 1e39, 3e38, -1e39, 1e-50, [], [0], [1], [0, 1], [None],
]  # fmt: skip
"""What may stand where a number is expected."""
NAMES: Mapping[str, Sequence[str]] = {
    "query": ["query", "Question", "search-query", "anchor", "q"],
    "document": ["document", "Positive", "passage text", "answer", "sentence2"],
    "query_id": ["query_id", "QID"],
    "document_id": ["document-id", "docno"],
    "title": ["title", "Title"],
    "grade": ["grade", "Label", "rel"],
    "weight": ["weight", "clicks"],
    "split": ["split", "Split"],
    "negative": ["negative", "hard_negatives", "neg_1"],
}
SPLITS = ["train", "train", "dev", "validation", "test"]


@st.composite
def changed(draw: Callable[..., Any], rows: list[Row], late: Sequence[str] = (), flat: bool = False) -> list[Row]:
    """Change 0 to 3 things in the later rows: values, types, keys, their order, and columns that come late."""
    rows = [dict(row) for row in rows]
    for _ in range(draw(st.sampled_from([0, 1, 2, 2, 3]))):
        at = draw(st.integers(len(rows) // 2, len(rows) - 1)) if rows else 0
        names = columns_of(rows) or ["url"]
        name = draw(st.sampled_from(names))
        of_numbers = any(isinstance(row.get(name), int | float) for row in rows) and draw(st.integers(0, 3)) > 0
        value = draw(st.sampled_from([own for own in (NUMBERS if of_numbers else ODD) if not (flat and nested(own))]))
        kind = draw(st.sampled_from(["set", "set", "from", "lose", "wrap", "wrap", "add", "turn", "text", "number"]))
        if kind == "add":
            name = draw(st.sampled_from([*late, "url", *(["label", "split", "negative", "title"] if late else [])]))
        for row in rows[at : at + 1] if kind == "set" else rows[at:]:
            if kind in ("set", "from", "add"):
                row[name] = value
            elif kind == "lose":
                row.pop(name, None)
            elif kind == "wrap" and not flat and name in row:
                row[name] = [row[name]]
            elif kind == "turn":
                items = list(row.items())[::-1]
                row.clear()
                row.update(items)
            elif kind == "text" and isinstance(row.get(name), int | float):
                row[name] = str(row[name])
            elif kind == "number" and str(row.get(name)).isdecimal():
                row[name] = int(row[name])
    return rows


def nested(value: Any) -> bool:
    """Whether CSV and TSV have no such value."""
    return isinstance(value, list | dict)


# Writers: one per format. Each returns whether it wrote plain texts, which must be read if the rows are right.


def cell(value: Any) -> str:
    """A value as a spreadsheet writes it."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """All keys, in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def write_csv(path: Path, rows: Sequence[Row], draw: Callable[..., Any]) -> bool:
    """Write CSV, in one of its dialects."""
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    text, end = io.StringIO(), draw(st.sampled_from(["\n", "\r\n"]))
    writer = csv.writer(text, delimiter=draw(st.sampled_from(",;\t|")), quoting=quoting, lineterminator=end)
    columns = columns_of(rows)
    lines = [columns, *([cell(row.get(name)) for name in columns] for row in rows)]
    again = draw(st.integers(0, 19)) == 19
    lines[len(lines) // 2 + 1 : 0] = [columns] * again
    writer.writerows(lines)
    path.write_bytes(draw(st.sampled_from(["", "\ufeff"])).encode() + text.getvalue().encode())
    return not again


def write_tsv(path: Path, rows: Sequence[Row], draw: Callable[..., Any]) -> bool:
    """Write TSV, perhaps without a header where id and text are its columns."""
    columns = columns_of(rows)
    lines = ["\t".join(cell(row.get(name)) for name in columns) for row in rows]
    header = ["\t".join(columns)] * (columns != ["id", "text"] or draw(st.booleans()))
    path.write_bytes((draw(st.sampled_from(["\n", "\r\n"])).join([*header, *lines, ""])).encode())
    return True


def write_jsonl(path: Path, rows: Sequence[Row], draw: Callable[..., Any]) -> bool:
    """Write JSON Lines, perhaps with empty ones between."""
    between = draw(st.sampled_from(["\n", "\n", "\r\n", "\n\n"]))
    ascii_only = draw(st.booleans())
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + between for row in rows).encode())
    return True


TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
    pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(20, 2),
    pa.decimal256(40, 0), pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.null(), pa.list_(pa.string()),
    pa.large_list(pa.large_string()), pa.list_(pa.string(), 1), pa.list_(pa.int64()), pa.list_(pa.float64()),
    pa.list_view(pa.string()), pa.list_(pa.list_(pa.string())),
    pa.struct([("a", pa.int64())]), pa.binary(1), pa.large_binary(),
]  # fmt: skip
"""Every physical type of Parquet, and what Arrow makes of them."""


def as_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """The values as a type, numbers from texts too, or ``None`` where they do not fit."""
    as_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if as_list or pa.types.is_list_view(kind):
        values = [value if value is None or isinstance(value, list) else [value] for value in values]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    try:
        return pa.array([None if value is None else cell(value) for value in values], pa.string()).cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def as_batches(rows: Sequence[Row], draw: Callable[..., Any]) -> pa.Table:
    """Rows as an Arrow table of types that fit, in chunks, perhaps cut out of longer arrays."""
    arrays = {}
    for name in columns_of(rows):
        values = [row.get(name) for row in rows]
        kinds = [pa.string(), *draw(st.lists(st.sampled_from(TYPES), max_size=2))]
        fitting = [array for kind in reversed(kinds) if (array := as_column(values, kind)) is not None]
        arrays[name] = next(iter(fitting), None)
        if arrays[name] is None:
            arrays[name] = pa.array([None if value is None else cell(value) for value in values], pa.string())
    table = pa.table(arrays)
    if draw(st.booleans()):
        table = pa.concat_tables([table, table]).combine_chunks().slice(len(rows))
    return table


def write_parquet(path: Path, rows: Sequence[Row], draw: Callable[..., Any]) -> bool:
    """Write Parquet in row groups of few rows."""
    table = as_batches(rows, draw)
    settings = {
        "row_group_size": draw(st.sampled_from([1, 2, 5, 100])),
        "use_dictionary": draw(st.booleans()),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "store_schema": draw(st.booleans()),
    }
    try:
        pq.write_table(table, path, **settings)
    except (pa.ArrowException, ValueError):  # Parquet has no such type
        text = [pa.array([None if v is None else cell(v) for v in map(_plain, own.to_pylist())]) for own in table]
        pq.write_table(pa.table(dict(zip(table.column_names, text, strict=True))), path, **settings)
    return set(table.schema.types) == {pa.string()}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)


def write_arrow(path: Path, rows: Sequence[Row], draw: Callable[..., Any]) -> bool:
    """Write an Arrow file or stream in batches of few rows."""
    table = as_batches(rows, draw)
    opened = draw(st.sampled_from([pa.ipc.new_file, pa.ipc.new_stream]))
    options = pa.ipc.IpcWriteOptions(compression=draw(st.sampled_from([None, "lz4", "zstd"])), unify_dictionaries=True)
    with opened(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=draw(st.sampled_from([1, 2, 5, 100])))
    return set(table.schema.types) == {pa.string()}


# Readers: one per format, of csv, json and pyarrow alone. Each returns the columns and the rows.

Table = tuple[list[str], list[Row]]


def _rows(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    if any(len(line) != len(columns) for line in lines) or len(set(columns)) < len(columns):
        raise WrongError("a row with more or fewer values than columns, or two columns of one name")
    return list(columns), [dict(zip(columns, line, strict=True)) for line in lines]


def read_csv(path: Path, _kind: str) -> Table:
    """Read CSV: comma, or semicolon, tab or vertical bar where the first line has no comma."""
    text = path.read_bytes().decode("utf-8-sig")
    first = re.split("[\r\n]", text, maxsplit=1)[0]
    delimiter = next((sign for sign in ",;\t|" if sign in first), ",")
    lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if line]
    if lines[0] in lines[1:]:
        raise WrongError("a header in the middle")
    return _rows(lines[0], lines[1:])


def read_tsv(path: Path, kind: str) -> Table:
    """Read TSV: a header if the first line names a query, a document or an id; else id and text."""
    text = path.read_bytes().decode("utf-8-sig")
    lines = [line.split("\t") for line in re.split("\r\n|\r|\n", text) if line]
    telling = [
        name for role in ("query", "document", "query_id", "document_id", "id") for name in ROLES[kind].get(role, ())
    ]
    if any(normal(name) in telling for name in lines[0]):
        return _rows(lines[0], lines[1:])
    if kind == "pairs" or len(lines[0]) not in (2, 4):
        raise WrongError("no header")
    return _rows(["id", "text"] if len(lines[0]) == 2 else ["id", "url", "title", "text"], lines)


def read_jsonl(path: Path, _kind: str) -> Table:
    """Read JSON Lines; as texts, fractions stay as Python writes them."""
    rows = records(path, parse_float=lambda digits: repr(float(digits)))
    return columns_of(rows), rows


def records(path: Path, **options: Any) -> list[Row]:
    """The objects of a JSON Lines file."""
    lines = re.split("\r\n|\r|\n", path.read_bytes().decode("utf-8-sig"))
    return [json.loads(line, **options) for line in lines if line.strip(" ")]


def read_parquet(path: Path, _kind: str) -> Table:
    """Read Parquet."""
    table = pq.ParquetFile(path).read()
    return table.column_names, table.to_pylist()


def read_arrow(path: Path, _kind: str) -> Table:
    """Read an Arrow file, or a stream."""
    with path.open("rb") as file:
        opened = pa.ipc.open_file if file.peek(6)[:6] == b"ARROW1" else pa.ipc.open_stream
        table = opened(file).read_all()
    return table.column_names, table.to_pylist()


def read_qrels(path: Path) -> Table:
    """Read TREC's qrels."""
    lines = [line.split() for line in re.split("\r\n|\r|\n", path.read_text(encoding="utf-8")) if line.strip()]
    columns, rows = _rows(["query_id", "iteration", "document_id", "grade"], lines)
    return columns[:1] + columns[2:], rows


# What rows mean: docs/data.md.

_IDS = {
    "document": ["document_id", "doc_id", "docid", "corpus_id", "passage_id", "pid", "docno", "did"],
    "query": ["query_id", "qid", "q_id", "question_id"],
}
ROLES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "pairs": {
        "query": ["query", "anchor", "question", "q", "query_text", "search_query", "sentence1", "sentence_1"],
        "document": ["document", "positive", "passage", "answer", "doc", "pos", "document_text", "passage_text",
                     "sentence2", "sentence_2"],
        "query_id": _IDS["query"], "document_id": _IDS["document"], "title": ["title"],
        "grade": ["grade", "score", "relevance", "rel", "label", "rating"],
        "weight": ["weight", "clicks", "count"], "split": ["split"],
    },
    "documents": {
        "id": ["id", "_id", *_IDS["document"]], "title": ["title"],
        "text": ["text", "document", "passage", "contents", "content", "body", "document_text", "passage_text"],
    },
    "queries": {"id": ["id", "_id", *_IDS["query"]], "text": ["text", "query", "question", "q", "query_text"]},
}  # fmt: skip
SPLIT_OF = {"train": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"}


def normal(name: str) -> str:
    """A column's name whatever its case, with underscores."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_negative(name: str) -> bool:
    """Whether a column holds negatives: the names, with a number or a plural s."""
    return re.fullmatch("(negative|neg|hard_negative)s?_?[0-9]*", normal(name)) is not None


def roles_of(columns: Sequence[str], kind: str) -> dict[str, str]:
    """The column of each role; two for one are an error."""
    found: dict[str, str] = {}
    for name in columns:
        for role, names in ROLES[kind].items():
            beside_q = role == "document" and normal(name) == "a" and any(normal(own) == "q" for own in columns)
            if normal(name) in names or beside_q:
                if role in found:
                    raise WrongError(f"two columns could be the {role}")
                found[role] = name
    return found


def text_of(value: Any, empty: bool = False) -> str:
    """A value as a text: whole numbers are their digits; an empty text is an error unless it may be."""
    if isinstance(value, dict) and "bytes" in value:
        raise WrongError("bytes")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if (value is not None and not isinstance(value, str | int | float)) or isinstance(value, bool):
        raise WrongError(f"no text: {value!r}")
    text = "" if value is None else str(value)
    if not empty and not text.strip():
        raise WrongError("an empty text")
    return text


def texts_of(value: Any) -> list[str]:
    """Texts may stand in lists."""
    return [text_of(own) for own in value] if isinstance(value, list) else [text_of(value)]


def number_of(value: Any) -> float:
    """A finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise WrongError(f"no number: {value!r}") from None
    if not math.isfinite(number):
        raise WrongError(f"not finite: {value!r}")
    return number


def of_lists(rows: Sequence[Row], column: str) -> bool:
    """Whether a column holds lists, which then all values are; null may stand for one."""
    kinds = {isinstance(row.get(column), list) for row in rows if row.get(column) is not None}
    if len(kinds) == 2:
        raise WrongError("lists and single values")
    return True in kinds


def texts_table(table: Table, kind: str) -> dict[str, Text]:
    """Documents or queries by id."""
    columns, rows = table
    roles, found = roles_of(columns, kind), {}
    if "id" not in roles or "text" not in roles:
        raise WrongError("no id or no text")
    for row in rows:
        identifier = text_of(row.get(roles["id"]))
        if identifier in found:
            raise WrongError("an id twice")
        title = text_of(row.get(roles.get("title", "")), empty=True) if "title" in roles else ""
        found[identifier] = (identifier, title, text_of(row.get(roles["text"]), empty=True))
    return found


@dataclass
class _Judged:
    pair: Pair
    grade: float | None
    weight: float | None


def table_data(
    pairs: Sequence[tuple[str | None, Table]], documents: Table | None = None, queries: Table | None = None
) -> Seen:
    """What tables of pairs mean, texts themselves or ids of other tables."""
    known = {
        "query": None if queries is None else texts_table(queries, "queries"),
        "document": None if documents is None else texts_table(documents, "documents"),
    }
    roles = [roles_of(columns, "pairs") for _, (columns, _) in pairs]
    negatives = [[name for name in columns if is_negative(name)] for _, (columns, _) in pairs]
    kept = {
        "query": all("query_id" in own for own in roles),
        "document": all("document_id" in own for own in roles) and not any(negatives),
    }
    values: dict[str, list[str]] = {"query": [], "document": []}
    judged: list[tuple[str, int, int, float | None, float | None]] = []
    wrong: list[tuple[int, int]] = []  # query and negative, of train
    titles: dict[int, tuple[str | None, str]] = {}

    def add(side: str, text: str, row: Row, own: Mapping[str, str]) -> int:
        values[side].append(text)
        identifier = text_of(row.get(own[f"{side}_id"])) if kept[side] and known[side] is None else None
        title = ""
        if side == "document" and "title" in own and known[side] is None:  # else their table has the titles
            title = text_of(row.get(own["title"]), empty=True)
        titles[len(values[side]) * (1 if side == "query" else -1)] = (identifier, title)
        return len(values[side]) - 1

    for (split, (_, rows)), own, negative in zip(pairs, roles, negatives, strict=True):
        column = {
            side: own.get(f"{side}_id" if known[side] is not None and f"{side}_id" in own else side)
            for side in ("query", "document")
        }
        numbers = [role for role in ("grade", "weight") if role in own and not of_lists(rows, own[role])]
        if None in column.values():
            raise WrongError("no query or no document")
        for row in rows:
            name = split or (
                SPLIT_OF.get(text_of(row.get(own["split"])).strip().lower()) if "split" in own else "train"
            )
            if name is None:
                raise WrongError("no such split")
            given = row.get(column["query"])
            if isinstance(given, list):
                raise WrongError("one query per row")
            query = add("query", text_of(given), row, own)
            grade, weight = (number_of(row.get(own[role])) if role in numbers else None for role in ("grade", "weight"))
            if weight is not None and weight < 0:
                raise WrongError("a weight below 0")
            for text in texts_of(row.get(column["document"])):
                judged.append((name, query, add("document", text, row, own), grade, weight))
            for text in (text for own_column in negative for text in _negatives(row.get(own_column))):
                at = add("document", text, row, {})
                if name == "train":
                    wrong.append((query, at))
    if not judged:
        raise WrongError("no pairs")

    def resolved(side: str) -> list[Text]:
        sign, table = (1 if side == "query" else -1), known[side]
        if table is None:
            found = [
                (titles[sign * (at + 1)][0], titles[sign * (at + 1)][1], text) for at, text in enumerate(values[side])
            ]
            by_id: dict[str, Text] = {}
            for text in found:
                if text[0] is not None and by_id.setdefault(text[0], text) != text:
                    raise WrongError("an id with two texts")
            return found
        if not all(text in table for text in values[side]):  # then they are texts
            table = {text[2]: text for text in reversed(table.values())}
        if any(text not in table for text in values[side]):
            raise WrongError("an unknown id")
        return [table[text] for text in values[side]]

    query, document = resolved("query"), resolved("document")
    seen = Seen()
    for side, own_texts, all_of in (("queries", query, known["query"]), ("documents", document, known["document"])):
        setattr(seen, side, sorted(set(own_texts) if all_of is None else all_of.values(), key=repr))
    rows = [_Judged((split, query[q], document[d]), grade, weight) for split, q, d, grade, weight in judged]
    for split in dict.fromkeys(own.pair[0] for own in rows):
        seen.pairs |= _merged([own for own in rows if own.pair[0] == split])
    relevant = {pair[1:] for pair, (grade, _) in seen.pairs.items() if pair[0] == "train" and grade > 0}
    seen.negatives = {(query[q], document[d]) for q, d in wrong} - relevant
    return seen


def _negatives(value: Any) -> list[str]:
    return [] if value is None else texts_of(value)


def _merged(rows: Sequence[_Judged]) -> dict[Pair, tuple[int, float | None]]:
    """The pairs of a split: fractions are weights, repeated ones are merged, and weight 0 is not relevant."""
    graded, weighted = any(own.grade is not None for own in rows), any(own.weight is not None for own in rows)
    grades = [1.0 if own.grade is None else own.grade for own in rows]
    weights = [1.0 if own.weight is None else own.weight for own in rows] if weighted else None
    if graded and any(not grade.is_integer() for grade in grades):
        weights = [max(0.0, grade) for grade in grades] if weights is None else weights
        grades = [float(grade > 0) for grade in grades]
    if any(abs(grade) > 1000 for grade in grades):
        raise WrongError("a grade beyond 1000")
    found: dict[Pair, tuple[int, float | None]] = {}
    for at, own in enumerate(rows):
        grade, weight = found.get(own.pair, (int(grades[at]), None if weights is None else 0.0))
        total = None if weights is None or weight is None else weight + weights[at]
        found[own.pair] = (max(grade, int(grades[at])), total)
    for pair, (grade, weight) in found.items():
        positive = grade if weight is None or weight > 0 else min(grade, 0)
        found[pair] = (positive, weight)
        if positive > 0 and not (pair[1][2].strip() and (pair[2][1] + pair[2][2]).strip()):
            raise WrongError("a relevant pair without a text")
    return found


def string(value: Any, empty: bool = False) -> str:
    """A text of a BEIR, FlagEmbedding or Tevatron file; a number is its digits, null an empty one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str | None) or not (empty or (value or "").strip()):
        raise WrongError(f"no text: {value!r}")
    return value or ""


def strings(value: Any) -> list[str]:
    """A list of texts, none of them null; null is an empty list."""
    if not isinstance(value, list | None) or None in (value or []):
        raise WrongError(f"no texts: {value!r}")
    return [string(own, True) for own in value or []]


def by_id(texts: Sequence[Text]) -> dict[str | None, Text]:
    """Texts by their ids, of which none occurs twice."""
    found = {text[0]: text for text in texts}
    if len(found) < len(texts):
        raise WrongError("an id twice")
    return found


def beir_data(folder: Path) -> Seen:
    """What a BEIR folder means; documents without a text are kept, and a repeated judgement has one grade."""
    documents, queries = (
        by_id([(string(row["_id"]), string(row.get("title"), True), string(row.get("text"), True)) for row in rows])
        for rows in (records(folder / f"{name}.jsonl") for name in ("corpus", "queries"))
    )
    seen = Seen(sorted(documents.values(), key=repr), sorted(queries.values(), key=repr))
    for path in (folder / "qrels").iterdir():
        lines = [line.split("\t") for line in re.split("\r\n|\r|\n", path.read_text("utf-8-sig")) if line.strip(" ")]
        for row in _rows(lines[0], lines[1:])[1]:
            if row["query-id"] not in queries or row["corpus-id"] not in documents:
                raise WrongError("an unknown id")
            pair = path.stem, queries[row["query-id"]], documents[row["corpus-id"]]
            grade = number_of(row["score"])
            if not grade.is_integer() or seen.pairs.setdefault(pair, (int(grade), None))[0] != grade:
                raise WrongError("two grades")
    return seen


@dataclass
class Trained:
    """Files of another trainer, collected; texts are by id, or by title and text where they have none."""

    documents: dict[Any, Text] = field(default_factory=dict)
    queries: dict[Any, Text] = field(default_factory=dict)
    positives: list[Pair] = field(default_factory=list)
    judged: dict[Pair, int] = field(default_factory=dict)
    negatives: set[tuple[Text, Text]] = field(default_factory=set)
    scores: dict[tuple[Text, Text], list[float]] = field(default_factory=dict)
    prompts: set[str] = field(default_factory=set)

    def data(self) -> Seen:
        """What all files mean: a judgement goes before a training line, a positive before a negative."""
        if not self.queries:
            raise WrongError("no queries")
        pairs = dict.fromkeys(self.positives, (1, None)) | {p: (grade, None) for p, grade in self.judged.items()}
        relevant = {pair[1:] for pair, (grade, _) in pairs.items() if grade > 0}
        return Seen(
            sorted(self.documents.values(), key=repr),
            sorted(self.queries.values(), key=repr),
            dict(pairs),
            self.negatives - relevant,
            self.scores,
            next(iter(self.prompts)) or None if len(self.prompts) == 1 else None,
        )


def read_if_told(path: Path, *needed: str) -> list[Row]:
    """The records of a file of which one has the columns needed; other files are not read."""
    rows = records(path)
    return rows if any(set(names.split()) <= row.keys() for names in needed for row in rows) else []


def whole(title: str, text: str) -> str:
    """Title and text as one text."""
    return f"{title} {text}".strip() if title else text


def text_by_id(known: dict[Any, Text], identifier: Any, title: str, text: str) -> Text:
    """The text of an id, which has one."""
    own = known.setdefault(identifier_of(identifier), (identifier_of(identifier), title, text))
    if whole(*own[1:]) != whole(title, text):
        raise WrongError("an id with two texts")
    return own


def known_text(known: dict[Any, Text], identifier: Any, title: str, text: str) -> Text:
    """The text of an id; without one, texts that are equal are one."""
    if identifier is not None:
        return text_by_id(known, identifier, title, text)
    same = (own for own in known.values() if whole(*own[1:]) == whole(title, text))
    return next(same, None) or known.setdefault((None, whole(title, text)), (None, title, text))


def identifier_of(value: Any) -> str:
    """An id, perhaps a number."""
    return string(value)


def flagembedding_data(files: Mapping[str, Path]) -> Seen:
    """What files of FlagEmbedding mean, training files by split; ``corpus``, ``SPLIT_queries``, ``SPLIT_qrels``."""
    all_of = Trained()
    for name in sorted(files, key=lambda name: ("corpus" not in name, "queries" not in name, "qrels" in name, name)):
        split, needed = name.partition("_")[0], {"corpus": "id text", "queries": "id text", "qrels": "qid docid"}
        for row in read_if_told(files[name], needed.get(name.rpartition("_")[2], "query pos")):
            if name == "corpus":
                text_by_id(all_of.documents, row["id"], string(row.get("title"), True), string(row.get("text"), True))
            elif name.endswith("_queries"):
                text_by_id(all_of.queries, row["id"], "", string(row.get("text"), True))
            elif name.endswith("_qrels"):
                ids = identifier_of(row.get("qid")), identifier_of(row.get("docid"))
                if ids[0] not in all_of.queries or ids[1] not in all_of.documents:
                    raise WrongError("an unknown id")
                grade = number_of(row.get("relevance", 1))
                all_of.judged[split, all_of.queries[ids[0]], all_of.documents[ids[1]]] = int(grade)
            else:
                _read_line(all_of, split, row)
    return all_of.data()


def _read_line(all_of: Trained, split: str, row: Row) -> None:
    query = known_text(all_of.queries, None, "", string(row.get("query")))
    all_of.prompts.add(string(row.get("prompt"), True))
    if not strings(row.get("pos")):
        raise WrongError("no positive")
    for key in ("pos", "neg"):
        texts, scores = strings(row.get(key)), row.get(f"{key}_scores") or []
        if scores and len(scores) != len(texts):
            raise WrongError("a score for each text")
        for at, text in enumerate(texts):
            document = known_text(all_of.documents, None, "", string(text, key == "neg"))
            if key == "pos":
                all_of.positives.append((split, query, document))
            else:
                all_of.negatives.add((query, document))
            if scores and scores[at] is not None:
                all_of.scores.setdefault((query, document), []).append(number_of(scores[at]))


def tevatron_data(files: Mapping[str, Path]) -> Seen:
    """What files of Tevatron mean: training files by split, and ``corpus``."""
    all_of = Trained()
    for name in sorted(files, key=lambda name: (name != "corpus", name)):
        needed = ["docid text"] if name == "corpus" else ["positive_passages", "positive_document_ids"]
        for row in read_if_told(files[name], *needed):
            if name == "corpus":
                text_by_id(all_of.documents, row["docid"], string(row.get("title"), True), string(row["text"], True))
                continue
            query = known_text(all_of.queries, row.get("query_id"), "", string(row.get("query", row.get("query_text"))))
            all_of.prompts.add("")
            for kind in ("positive", "negative"):
                passages = row.get(f"{kind}_passages") or []
                ids = row.get(f"{kind}_document_ids")
                if ids is not None:  # the newer form
                    passages = [{"docid": own} for own in ids]
                if kind == "positive" and not passages:
                    raise WrongError("no positive")
                for passage in passages:
                    texts = [string(passage.get(key), True) for key in ("title", "text")]
                    if passage.get("text") is None:  # its id stands for it
                        if identifier_of(passage.get("docid")) not in all_of.documents:
                            raise WrongError("an unknown id")
                        texts = list(all_of.documents[identifier_of(passage["docid"])][1:])
                    document = known_text(all_of.documents, passage.get("docid"), *texts)
                    if kind == "positive":
                        string(whole(*texts))
                    if kind == "positive":
                        all_of.positives.append((name.partition("_")[0], query, document))
                    else:
                        all_of.negatives.add((query, document))
    return all_of.data()


# What OPERA loaded, in the same form.


def loaded(data: RetrievalData, like: Seen) -> Seen:
    """A data set as :class:`Seen`, with the ids that ``like`` has."""

    def texts(table: Any, like: Sequence[Text]) -> list[Text]:
        rows = table.table.to_pylist()
        without = {text[1:] for text in like if text[0] is None}
        texts = ((row["id"], row["title"], row["text"]) for row in rows)
        return [text if text in like or text[1:] not in without else (None, *text[1:]) for text in texts]

    query, document = texts(data.queries, like.queries), texts(data.corpus, like.documents)
    seen = Seen(sorted(document, key=repr), sorted(query, key=repr), prompt=data.query_prompt)
    for split, qrels in data.splits.items():
        weights = [None] * len(qrels.grades) if qrels.weights is None else qrels.weights.tolist()
        rows = zip(qrels.query_rows[qrels.query_index], qrels.doc_rows, qrels.grades.tolist(), weights, strict=True)
        for q, d, grade, weight in rows:
            assert (split, query[q], document[d]) not in seen.pairs, "a pair twice"
            seen.pairs[split, query[q], document[d]] = (grade, weight)
    if (given := data.given_negatives) is not None:
        for q, own in enumerate(query):
            seen.negatives |= {(own, document[d]) for d in given.doc_rows[given.offsets[q] : given.offsets[q + 1]]}
    if (teacher := data.teacher) is not None:
        for q, d, score in zip(teacher.query_rows, teacher.doc_rows, teacher.scores.tolist(), strict=True):
            seen.scores.setdefault((query[q], document[d]), []).append(score)
    return seen


def assert_equal(found: Seen, seen: Seen) -> None:
    """Check that OPERA loaded what the reader sees; float32 holds weights and scores to one part in 10 million."""
    assert found.documents == seen.documents
    assert found.queries == seen.queries
    assert found.pairs.keys() == seen.pairs.keys()
    for pair, (grade, weight) in seen.pairs.items():
        assert found.pairs[pair][0] == grade, pair
        own = found.pairs[pair][1]
        assert (own is None) == (weight is None), pair
        assert own is None or weight is None or math.isclose(own, weight, rel_tol=1e-6), pair
    assert found.negatives == seen.negatives
    assert found.scores.keys() == seen.scores.keys()
    for key, values in found.scores.items():
        assert any(math.isclose(values[0], np.float32(own), rel_tol=1e-6) for own in seen.scores[key]), key
    assert found.prompt == seen.prompt
