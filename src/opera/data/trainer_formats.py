"""Read JSON Lines of FlagEmbedding and Tevatron: one row per query-document pair."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from opera.core.errors import DataError, OperaError
from opera.core.terminal import shortened, shown
from opera.data.beir import BEIR_FILES
from opera.data.index import Index
from opera.data.names import SPLIT_NAMES
from opera.data.read import Table, json_value
from opera.data.relation import Relation, document_key, key
from opera.data.store import DataBuilder
from opera.data.text_files import BadRow, json_objects

SUFFIXES = (".jsonl", ".json")
_SPLITS = {**SPLIT_NAMES, "training": "train", "eval": "eval", "evaluation": "eval"}
FIELDS = ("negative", "query_id", "query", "document_id", "title", "document", "grade", "score")
"""The values of a pair from an adapter. A missing value is null."""
Record = dict[str, Any]


def text_of(record: Record, *names: str, empty: str | None = "") -> Any:
    """The value of the first column of ``names`` in a record, as a text; ``empty`` if missing.

    Raises:
        BadRow: if it is neither a text nor a number.
    """
    name = next((name for name in names if name in record), names[0])
    value = json_value(name, record.get(name), pa.string())
    return empty if value is None else value


def list_of(record: Record, name: str) -> list[Any]:
    """The list in a column; an empty list if missing.

    Raises:
        BadRow: if it is not a list.
    """
    values = record.get(name)
    if not isinstance(values, list | None):
        raise BadRow(f"column {shown(name)} must be a list, got {{}}", shown(values))
    return values or []


def flagembedding(record: Record) -> Iterator[Record]:
    """Yield the pairs of a query with lists of positives and negatives, and optional scores."""
    pair: Record = {"query": text_of(record, "query")}
    for name, negative in (("pos", False), ("neg", True)):
        texts = [text_of({name: value}, name) for value in list_of(record, name)]
        scores_name = f"{name}_scores"
        scores = [
            text_of({scores_name: value}, scores_name, empty=None)
            for value in list_of(record, scores_name)
        ]
        if scores and len(scores) != len(texts):
            rule = f"must have one number for each text of {shown(name)}, got {{}}"
            counts = f"{len(scores)} for {len(texts)}"
            raise BadRow(f"column {shown(scores_name)} {rule}", counts)
        for text, score in zip_longest(texts or [""], scores):
            if text.strip() or not negative:  # an empty text cannot be a negative
                yield {**pair, "document": text, "score": score, "negative": negative}


def tevatron(record: Record) -> Iterator[Record]:
    """Yield the pairs of a query with lists of passages and their ids, or lists of ids."""
    query = text_of(record, "query", "query_text")
    pair: Record = {"query": query, "query_id": text_of(record, "query_id", empty=None)}
    for kind in ("positive", "negative"):
        name, ids = f"{kind}_passages", record.get(f"{kind}_document_ids")
        if ids is not None:
            record[name] = [{"docid": value} for value in ids] if isinstance(ids, list) else ids
        passages = list_of(record, name)
        for passage in passages or [{}] * (kind == "positive"):
            if not isinstance(passage, dict):
                raise BadRow(f"column {shown(name)} must be an object, got {{}}", shown(passage))
            title = text_of({f"{name}.title": passage.get("title")}, f"{name}.title")
            text = text_of({f"{name}.text": passage.get("text")}, f"{name}.text", empty=None)
            identifier = text_of(
                {f"{name}.docid": passage.get("docid")}, f"{name}.docid", empty=None
            )
            if text is None and identifier is None:
                title = text = ""
                if kind == "negative":
                    continue
            yield {
                **pair,
                "document_id": identifier,
                "title": title,
                "document": text,
                "negative": kind == "negative",
            }


def corpus(record: Record) -> Iterator[Record]:
    """Yield a document."""
    yield {
        "document_id": text_of(record, "docid", "id"),
        "title": text_of(record, "title"),
        "document": text_of(record, "text"),
    }


def queries(record: Record) -> Iterator[Record]:
    """Yield the query of a line as a row."""
    yield {"query_id": text_of(record, "docid", "id"), "query": text_of(record, "text")}


def qrels(record: Record) -> Iterator[Record]:
    """Yield a judgement of texts in other files."""
    yield {
        "query_id": text_of(record, "qid"),
        "document_id": text_of(record, "docid"),
        "grade": text_of(record, "relevance") if "relevance" in record else "1",
    }


class Kind(NamedTuple):
    """A kind of file: required columns, optional columns, and the adapter."""

    needed: list[str]
    optional: list[str]
    adapt: Callable[[Record], Iterator[Record]]
    identifies_folder: bool
    """Whether one such file shows that its folder has trainers' files."""
    names: Mapping[str, str]
    """The names of columns by role, for messages."""


KINDS = {  # texts come first, because ids refer to texts that were read before
    "corpus": Kind(["text"], ["docid", "id", "title"], corpus, False, {"document_id": "docid"}),
    "queries": Kind(["text"], ["docid", "id"], queries, False, {"query_id": "docid"}),
    "flagembedding": Kind(
        ["query", "pos"], ["neg", "pos_scores", "neg_scores", "prompt"], flagembedding, True,
        {"document": "pos", "score": "pos_scores"},
    ),
    "tevatron": Kind(
        [],
        ["query_id", "query", "query_text", "positive_passages", "negative_passages",
         "positive_document_ids", "negative_document_ids"],
        tevatron, True, {"document": "positive_passages", "document_id": "positive_passages.docid"},
    ),
    "qrels": Kind(
        ["qid", "docid"], ["relevance"], qrels, True,
        {"query_id": "qid", "document_id": "docid", "grade": "relevance"},
    ),
}  # fmt: skip


def kind_of(keys: Set[str], path: Path) -> str | None:
    """Return the kind of a file by the keys of a record, or ``None``."""
    if {"query", "pos"} <= keys:
        return "flagembedding"
    if keys & {"positive_passages", "positive_document_ids"}:
        return "tevatron"
    if {"qid", "docid"} <= keys:
        return "qrels"
    if "text" in keys and keys & {"id", "docid"}:
        return "queries" if path.stem.lower().endswith("queries") else "corpus"
    return None


def _kind_of_file(path: Path) -> str | None:
    """The kind of a file by its first record with known keys, or ``None``.

    Raises:
        OperaError: if a JSON Lines file cannot be read. Otherwise OPERA would silently ignore it.
    """
    try:
        kinds = (kind_of(record.keys(), path) for _, record in json_objects(path))
        return next((kind for kind in kinds if kind is not None), None)
    except OperaError:
        if path.suffix.lower() == ".jsonl":
            raise
        return None


def first_keys(path: Path) -> Set[str]:
    """Return the keys of the first record of a JSON Lines file, if it has one. Never raises."""
    try:
        return next(json_objects(path), (0, dict[str, Any]()))[1].keys()
    except OperaError:
        return set()


def has_known_keys(keys: Set[str], path: Path) -> bool:
    """Whether a record with these keys belongs to FlagEmbedding or Tevatron."""
    kind = kind_of(keys, path)
    return kind is not None and KINDS[kind].identifies_folder


def is_json_table(path: Path) -> bool:
    """Whether the first record of a JSON Lines file is a table row. Never raises."""
    if path.suffix.lower() in (".gz", ".zst"):
        return True
    keys = first_keys(path)
    return bool(keys) and not has_known_keys(keys, path) and not keys & {"pos", "neg"}


def listed_files(source: str) -> list[Path]:
    """Return a file, or the JSON Lines files in a folder, sorted and without hidden files.

    Raises:
        DataError: if a folder cannot be read.
    """
    if not os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises an error for a long name
        return [Path(source)]
    try:
        files = sorted(Path(source).glob("[!.]*"))
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror})") from None
    return [path for path in files if path.suffix.lower() in SUFFIXES]


def holds_trainer_files(folder: str) -> bool:
    """Whether a folder has files of FlagEmbedding or Tevatron, not of BEIR. Never raises."""
    beir = any(os.path.lexists(Path(folder, name)) for name in BEIR_FILES[1:])
    return not beir and any(has_known_keys(first_keys(path), path) for path in listed_files(folder))


def trainer_files(source: str) -> dict[Path, str | None]:
    """Return the files of a source with their kinds.

    Raises:
        OperaError: if a file cannot be read.
    """
    single = Path(source).is_file()
    kinds = {path: _kind_of_file(path) for path in listed_files(source)}
    if single and not any(kind and KINDS[kind].identifies_folder for kind in kinds.values()):
        return dict.fromkeys(kinds, "flagembedding")  # its reader has the best error message
    return kinds


def read_trainer_files(source: str, relation: Relation, builder: DataBuilder) -> None:
    """Read files of FlagEmbedding or Tevatron, including FlagEmbedding's evaluation files.

    A single file is train. In a folder, file names contain the split, such as ``dev_nq.jsonl``;
    other files are train. Documents without an id get ``d0``, ``d1``, ... in order of first
    appearance, and queries get ``q0``, ``q1``, ...

    Raises:
        DataError: with file, line, rule and value.
    """
    kinds, single = trainer_files(source), Path(source).is_file()
    pair_files = [path for path, kind in kinds.items() if kind and KINDS[kind].identifies_folder]
    split_of = dict.fromkeys(pair_files, "train") if single else _splits_of(pair_files)
    splits = [split for split in ("train", "dev", "test") if split in split_of.values()]
    unused, prompts = set[str](), dict[str, None]()
    for name, kind in KINDS.items():
        for path in (path for path, kind in kinds.items() if kind == name):
            add_records(relation, path, kind, split_of.get(path, splits[0]), unused, prompts)
    Index(relation, builder, source).build(splits)
    notes = relation.notes
    if unused:
        notes.append(f"unused columns: {shortened(', '.join(sorted(unused)))}")
    train = builder.splits.get("train")
    for split, judged in builder.splits.items():
        if train is not None and split != "train":
            shared = int(np.isin(judged.query_rows, train.query_rows).sum())
            if shared:
                notes.append(f"train contains {shared} of the {judged.n_queries} {split} queries")
    if "tevatron" in kinds.values():
        prompts[""] = None
    builder.query_prompt = _common_prompt(list(prompts), notes)
    if len(kinds) > 1:
        parts = [
            f"{split} from "
            + ", ".join(shown(path.name) for path in pair_files if split_of[path] == split)
            for split in dict.fromkeys(split_of.values())
        ]
        first = [shortened("; ".join(parts), 300)]
        if ignored := ", ".join(shown(path.name) for path, kind in kinds.items() if kind is None):
            first.append(f"ignored files without known keys: {shortened(ignored)}")
        notes[:0] = first


def add_records(
    relation: Relation,
    path: Path,
    kind: Kind,
    split: str,
    unused: set[str],
    prompts: dict[str, None],
) -> None:
    """Add the records of a file; ``unused`` gets the names of unused columns."""
    table = Table(str(path), [], path.name)

    def rows() -> Iterator[tuple[Any, ...]]:
        for line, record in checked_records(path, kind, unused):
            relation.problems.count(table, 1)
            try:
                pairs = list(kind.adapt(record))
                if kind.adapt is flagembedding:
                    prompts[text_of(record, "prompt")] = None
            except BadRow as error:
                relation.problems.add(table, [line], error.rule, partial(str, error.value))
                continue
            for pair in pairs:
                yield (
                    line,
                    *(pair.get(name, False if name == "negative" else None) for name in FIELDS),
                )

    of_document = document_key("title", "document")
    types = {name: pa.bool_() if name == "negative" else pa.string() for name in FIELDS}
    values = {
        "part": "0", "split": f"'{split}'", "known_split": "true",
        **{name: name for name in FIELDS},
        "query_key": f"CASE WHEN query IS NOT NULL THEN {key('query')} END",
        "document_key": f"CASE WHEN document IS NOT NULL THEN {of_document} END",
    }  # fmt: skip
    relation.insert("pairs", table, kind.names, values, relation.stream_rows(rows(), types))


def checked_records(path: Path, kind: Kind, unused: set[str]) -> Iterator[tuple[int, Record]]:
    """Yield line number and record of a JSON Lines file; ``unused`` gets the unused keys.

    Raises:
        DataError: for a line that is not a JSON object, or without a required key.
    """
    for number, record in json_objects(path):
        unused.update(record.keys() - {*kind.needed, *kind.optional})
        for name in kind.needed:
            if name not in record:
                has = shortened(", ".join(record)) or "none"
                raise DataError(f"{path}:{number}: column '{name}' is missing (it has: {has})")
        yield number, record


def _splits_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the splits by file: the last split in the file's name, or ``train``.

    ``eval`` means test, or dev if other files are test.
    """
    splits = {}
    for path in paths:
        words = [word for word in re.split("[^a-z]+", path.stem.lower()) if word in _SPLITS]
        splits[path] = _SPLITS[words[-1]] if words else "train"
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
        examples = " and ".join(map(shown, prompts[:2]))
        notes.append(
            f"the lines have {len(prompts)} different prompts, such as {examples}, so OPERA uses "
            "none; set one with query_prompt, or write the prompts into the queries"
        )
    return None
