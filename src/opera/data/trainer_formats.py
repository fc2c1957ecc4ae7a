"""Read the JSON files of FlagEmbedding, Tevatron and DPR: one row per query-document pair."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.json_tables import JsonLines, JsonList, JsonTable, json_value
from opera.data.names import SPLIT_NAMES, split_name
from opera.data.numbering import TextNumbering
from opera.data.relation import Relation
from opera.data.store import DataBuilder
from opera.data.table_files import BEIR_FILES
from opera.data.tables import Problems
from opera.data.text_files import ALWAYS_UTF8, BadRow

_SPLITS = {**SPLIT_NAMES, "training": "train", "eval": "eval", "evaluation": "eval"}
FIELDS = ("negative", "query_id", "query", "document_id", "title", "document", "grade", "score")
"""The values of a pair from an adapter. A missing value is null."""
PASSAGES = (
    ("positive", "positive_document_ids", "positive_passages", "positive_ctxs"),
    (
        "negative",
        "negative_document_ids",
        "negative_passages",
        "negative_ctxs",
        "hard_negative_ctxs",
    ),
)
"""The columns of Tevatron and DPR: lists of ids, then lists of passages."""
PASSAGE_IDS = ("docid", "passage_id", "psg_id")
Record = dict[str, Any]


def text_of(record: Record, *names: str) -> Any:
    """The value of the first column of ``names`` in a record, as a text; ``None`` if missing.

    Raises:
        BadRow: if it is neither a text nor a number.
    """
    name = next((name for name in names if name in record), names[0])
    return json_value(name, record.get(name), pa.string())


def list_of(record: Record, name: str) -> list[Any]:
    """The list in a column; an empty list if missing.

    Raises:
        BadRow: if it is not a list.
    """
    values = record.get(name) or []
    if not isinstance(values, list):
        raise BadRow(f"column {shown(name)} must be a list, got {{}}", shown(values))
    return values


def flagembedding(record: Record) -> Iterator[Record]:
    """Yield the pairs of a query with lists of positives and negatives, and optional scores."""
    query = text_of(record, "query") or ""
    for name, negative in (("pos", False), ("neg", True)):
        documents, scores = list_of(record, name), list_of(record, f"{name}_scores")
        if scores and len(scores) != len(documents):
            rule = f"must have one number for each text of {shown(name)}, got {{}}"
            counts = f"{len(scores)} for {len(documents)}"
            raise BadRow(f"column {shown(f'{name}_scores')} {rule}", counts)
        for document, value in zip_longest(documents or [""], scores):
            text = json_value(name, document, pa.string()) or ""
            score = json_value(f"{name}_scores", value, pa.string())
            if text.strip() or not negative:  # an empty text cannot be a negative
                yield {"query": query, "document": text, "score": score, "negative": negative}


def passages(record: Record) -> Iterator[Record]:
    """Yield the pairs of a query from its lists of passages or ids. DPR allows no positives."""
    pair = {
        "query": text_of(record, "query", "query_text", "question") or "",
        "query_id": text_of(record, "query_id"),
    }
    for kind, ids, *names in PASSAGES:
        negative = kind == "negative"
        by_id = [(ids, {"docid": value}) for value in list_of(record, ids)]
        listed = [(name, passage) for name in names for passage in list_of(record, name)]
        missing = [(names[0], dict[str, Any]())] * ("positive_ctxs" not in record)
        for name, passage in by_id or listed or missing:
            if not isinstance(passage, dict):
                raise BadRow(f"column {shown(name)} must be an object, got {{}}", shown(passage))
            key = next((key for key in PASSAGE_IDS if key in passage), PASSAGE_IDS[0])
            identifier, title, text = (
                json_value(f"{name}.{name_of_field}", passage.get(name_of_field), pa.string())
                for name_of_field in (key, "title", "text")
            )
            if text is None and identifier is None:
                title = text = ""
            if identifier is not None or text or not negative:
                yield {
                    **pair,
                    "document_id": identifier,
                    "title": title or "",
                    "document": text,
                    "negative": negative,
                }


def corpus(record: Record) -> Iterator[Record]:
    """Yield a document."""
    yield {
        "document_id": text_of(record, "docid", "id") or "",
        "title": text_of(record, "title") or "",
        "document": text_of(record, "text") or "",
    }


def queries(record: Record) -> Iterator[Record]:
    """Yield the query of a line as a row."""
    yield {
        "query_id": text_of(record, "docid", "id") or "",
        "query": text_of(record, "text") or "",
    }


def qrels(record: Record) -> Iterator[Record]:
    """Yield a judgement of texts in other files."""
    yield {
        "query_id": text_of(record, "qid") or "",
        "document_id": text_of(record, "docid") or "",
        "grade": text_of({"relevance": 1} | record, "relevance") or "",
    }


class Kind(NamedTuple):
    """A kind of file: required columns, the adapter, and names of columns by role, for messages."""

    needed: list[str]
    adapt: Callable[[Record], Iterator[Record]]
    names: Mapping[str, str]


KINDS = {  # texts come first, because ids refer to texts that were read before
    "corpus": Kind(["text"], corpus, {"document_id": "docid"}),
    "queries": Kind(["text"], queries, {"query_id": "docid"}),
    "flagembedding": Kind(
        ["query", "pos"], flagembedding, {"document": "pos", "score": "pos_scores"}
    ),
    "tevatron": Kind(
        [],
        passages,
        {"document": "positive_passages", "document_id": "positive_passages.docid"},
    ),
    "dpr": Kind(
        ["positive_ctxs"],
        passages,
        {
            "query": "question",
            "document": "positive_ctxs",
            "document_id": "positive_ctxs.passage_id",
        },
    ),
    "qrels": Kind(
        ["qid", "docid"], qrels, {"query_id": "qid", "document_id": "docid", "grade": "relevance"}
    ),
}
KEYS: list[tuple[str, set[str]]] = [
    ("flagembedding", {"query", "pos"}),
    ("tevatron", {"positive_passages"}),
    ("tevatron", {"positive_document_ids"}),
    ("dpr", {"positive_ctxs"}),
    ("qrels", {"qid", "docid"}),
]
"""The kinds of files with pairs, and the keys of their first record."""
SUFFIXES = (".jsonl", ".json")
OF_TEXTS = ("corpus", "queries")
"""Kinds of files without pairs. Tables and BEIR folders have such files too."""


def kind_of(path: Path) -> str | None:
    """Return the kind of a file by its first record, or ``None``. Never raises."""
    record: Record = {}
    with suppress(DataError):
        _, record = next(_records_of(path).records(Problems()), (0, record))
    keys = record.keys()
    for kind, needed in KEYS:
        if needed <= keys:
            return kind
    if "text" in keys and keys & {"id", "docid"}:
        return "queries" if path.stem.lower().endswith("queries") else "corpus"
    return None


def _records_of(path: Path) -> JsonLines:
    return (JsonList if path.suffix.lower() == ".json" else JsonLines)(path, ALWAYS_UTF8)


def trainer_files(source: str) -> dict[Path, str | None]:
    """Return the files of FlagEmbedding or Tevatron in a folder, or a single file, with their kinds
    and in reading order; empty for other data. Other files have the kind ``None``. Never raises.
    """
    paths = [Path(source)]
    if os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises an error for a long name
        beir = any(os.path.lexists(Path(source, name)) for name in BEIR_FILES[1:])
        paths = [] if beir else sorted(Path(source).glob("[!.]*.json*"))
    kinds = {path: kind_of(path) for path in paths if path.suffix.lower() in SUFFIXES}
    if not set(kinds.values()) - {*OF_TEXTS, None}:
        return {}
    return {path: name for name in (None, *KINDS) for path, kind in kinds.items() if kind == name}


def read_trainer_files(source: str, relation: Relation, builder: DataBuilder) -> None:
    """Read files of FlagEmbedding or Tevatron, including FlagEmbedding's evaluation files.

    A single file is train. In a folder, file names contain the split, such as ``dev_nq.jsonl``;
    other files are train. A note names files with other columns. Documents without an id get
    ``d0``, ``d1``, ... in order of first appearance, and queries get ``q0``, ``q1``, ...

    Raises:
        DataError: with file, line, rule and value; or for a file that has no record.
    """
    kinds, single = trainer_files(source), Path(source).is_file()
    id_lists = sorted(path for path, kind in kinds.items() if kind not in (*OF_TEXTS, None))
    split_of = dict.fromkeys(id_lists, "train") if single else _splits_of(id_lists)
    splits = [split for split in ("train", "dev", "test") if split in split_of.values()]
    prompts = dict.fromkeys([""] * (not {"tevatron", "dpr"}.isdisjoint(kinds.values())))
    for path, kind in kinds.items():
        if kind is None:
            if path.suffix.lower() == ".jsonl":
                JsonTable(path)  # raises an error for a file without a record
            relation.note(f"left out {shown(path.name)}: not of FlagEmbedding, Tevatron or DPR")
        else:
            add_records(relation, path, KINDS[kind], split_of.get(path, splits[0]), prompts)
    if not single:
        files = ", ".join(f"{path.name} is {split}" for path, split in split_of.items())
        relation.note(shortened(f"splits from file names: {files}", 300))
    TextNumbering(relation, builder, source).build(splits)
    builder.query_prompt = _common_prompt(list(prompts), relation.notes)


def add_records(
    relation: Relation, path: Path, kind: Kind, split: str, prompts: dict[str, None]
) -> None:
    """Add the records of a file; ``prompts`` gets the prompts of its queries."""
    table, has_pairs = _records_of(path), kind.adapt not in (corpus, queries)
    name = has_pairs and split_name(Path(path.name), _SPLITS)

    def read_pairs() -> Iterator[tuple[Any, ...]]:
        for line, record in table.records(relation.problems):
            relation.problems.count(table, 1)
            try:
                if missing := [name for name in kind.needed if name not in record]:
                    rule = f"column {shown(missing[0])} is missing (it has: {{}})"
                    raise BadRow(rule, shortened(", ".join(record)) or "none")
                pairs = list(kind.adapt(record))
                if kind.adapt is flagembedding:
                    prompts[text_of(record, "prompt") or ""] = None
            except BadRow as error:
                relation.problems.add(table, [line], error.rule, error.value)
                continue
            for pair in pairs:
                yield line, *({"negative": False, **pair}.get(name) for name in FIELDS)

    types = {name: pa.bool_() if name == "negative" else pa.string() for name in FIELDS}
    values = {
        "column_number": "0", "split": f"'{split}'", "split_name": f"'{name}'" if name else "NULL",
        "known_split": "true",
        **{name: name for name in FIELDS},
        "query_key": "CASE WHEN query IS NOT NULL THEN text_key(query) END",
        "document_key": "CASE WHEN document IS NOT NULL THEN document_key(title, document) END",
    }  # fmt: skip
    relation.stream_rows(read_pairs(), types)
    relation.insert("pairs", table, {role: [column] for role, column in kind.names.items()}, values)


def _splits_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the splits by file: the split in the file's name, or ``train``.

    ``eval`` means test, or dev if other files are test.
    """
    names = {path: split_name(Path(path.name), _SPLITS) or "train" for path in paths}
    splits = {path: _SPLITS[name] for path, name in names.items()}
    evaluated = "dev" if "test" in splits.values() else "test"
    return {path: evaluated if split == "eval" else split for path, split in splits.items()}


def _common_prompt(prompts: list[str], notes: list[str]) -> str | None:
    """Return the prompt that all lines share, or ``None``."""
    if len(prompts) == 1 and prompts[0]:
        notes.append(
            f"every line has the prompt {shown(prompts[0])}, which OPERA puts before each query "
            "unless you set query_prompt"
        )
        return prompts[0]
    if len(prompts) > 1:
        notes.append(
            f"the lines have {len(prompts)} different prompts, such as {shown(prompts[0])} and "
            f"{shown(prompts[1])}, so OPERA uses none; set one with query_prompt, or write the "
            "prompts into the queries"
        )
    return None
