"""Files of other trainers: FlagEmbedding's and Tevatron's JSON Lines, alone or in folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from opera.core.errors import DataError, OperaError
from opera.core.storage import exhausted
from opera.core.terminal import shortened, shown
from opera.data.checks import check_grade, check_id
from opera.data.lines import json_objects, json_records, text_field
from opera.data.names import SPLIT_NAMES
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import DataBuilder, digest_files
from opera.data.tables.numbering import Texts
from opera.data.tables.pairs import PairBatch, PairStore
from opera.data.texts import BATCH_CHARACTERS

Kind = Literal["corpus", "queries", "flagembedding", "tevatron", "qrels"]

READING = "4"  # part of the cache's key, not of fingerprints: change it when what is read changes
SUFFIXES = (".jsonl", ".json")
BATCH_LINES = 5_000
_TELLING: tuple[Kind, ...] = ("flagembedding", "tevatron", "qrels")
"""Kinds of which one file shows what its folder is."""
_KINDS: Mapping[Kind, tuple[str, Sequence[str], Sequence[str]]] = {
    "corpus": ("documents (an id and text)", ["text"], ["id", "docid", "title"]),
    "queries": ("queries (id, text)", ["text"], ["id", "docid", "title"]),
    "flagembedding": (
        "FlagEmbedding (query, pos)",
        ["query", "pos"],
        ["neg", "pos_scores", "neg_scores", "prompt", "type", "id"],
    ),
    "tevatron": (
        "Tevatron (positive_passages or positive_document_ids)",
        [],
        [
            "query_id", "query", "query_text", "positive_passages", "negative_passages",
            "positive_document_ids", "negative_document_ids",
        ],
    ),
    "qrels": ("judgements (qid, docid)", ["qid", "docid"], ["relevance"]),
}  # fmt: skip
"""What a file holds, keys that its records have, and those that they may have; texts come first."""
_LARGEST = float(np.finfo(np.float32).max)
_SPLITS = {**SPLIT_NAMES, "training": "train", "eval": "eval", "evaluation": "eval"}


def kind_of(keys: Set[str], path: Path) -> Kind | None:
    """Return what a file is by the keys of a record; ``None`` for any other."""
    if {"query", "pos"} <= keys:
        return "flagembedding"
    if keys & {"positive_passages", "positive_document_ids"}:
        return "tevatron"
    if {"qid", "docid"} <= keys:
        return "qrels"
    if "text" in keys and keys & {"id", "docid"}:
        return "queries" if path.stem.lower().endswith("queries") else "corpus"
    return None


def first_keys(path: Path) -> Set[str]:
    """Return the keys of the first record of a JSON Lines file; none if it has none.

    Never raises.
    """
    try:
        return next(json_objects(path), (0, dict[str, Any]()))[1].keys()
    except OperaError:
        return set()


def is_json_table(path: Path) -> bool:
    """Whether the first record of a JSON Lines file is not another trainer's. Never raises."""
    if path.suffix.lower() in (".gz", ".zst"):
        return True
    keys = first_keys(path)
    return bool(keys) and kind_of(keys, path) not in _TELLING and not keys & {"pos", "neg"}


def is_pattern(source: str) -> bool:
    """Whether a source is a pattern such as ``data/*.jsonl``, and no path of that name."""
    return has_magic(source) and not os.path.lexists(source)


def listed_files(source: str) -> list[Path]:
    """Return the JSON Lines files behind a file, a folder or a pattern, by name, but hidden ones.

    Raises:
        DataError: if a folder cannot be read.
    """
    if is_pattern(source):
        found = [Path(name) for name in glob(source)]  # noqa: PTH207 - the user's own pattern
    elif os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises where a name is too long
        try:
            found = list(Path(source).iterdir())
        except OSError as error:
            raise exhausted(Path(source), error) or DataError(
                f"{source}: cannot be read ({error.strerror})"
            ) from None
    else:
        return [Path(source)]
    return sorted(
        path for path in found if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def holds_trainer_files(source: str) -> bool:
    """Whether a folder or pattern stands for trainers' files, not for a BEIR folder.

    Never raises.
    """
    beir = any(os.path.lexists(Path(source, name)) for name in ("queries.jsonl", "qrels"))
    if beir and not is_pattern(source):
        return False
    try:
        return any(kind_of(first_keys(path), path) in _TELLING for path in listed_files(source))
    except DataError:
        return False


def load_trainer_files(source: str) -> RetrievalData:
    """Read files of FlagEmbedding or Tevatron, and FlagEmbedding's evaluation files beside them.

    A single file is the train split. In a folder the names of the files say the split, such as
    ``dev_nq.jsonl``; files that name none are train. Documents and queries without an id are their
    texts, with the ids ``d0``, ``d1``, ... and ``q0``, ... in order of first appearance.

    Raises:
        DataError: naming file, line, rule and value.
    """
    single = Path(source).is_file()

    def kinds() -> dict[Path, Kind | None]:
        found = {path: kind_of(first_keys(path), path) for path in listed_files(source)}
        if single:  # what is wrong with a file of no known kind, this reader says best
            return {
                path: kind if kind in _TELLING else "flagembedding" for path, kind in found.items()
            }
        return found

    def digest() -> str:
        read = kinds()
        salt = "flag" if single and "flagembedding" in read.values() else "training files"
        return digest_files([path for path, kind in read.items() if kind is not None], salt)

    def parse(builder: DataBuilder) -> None:
        _parse(builder, source, kinds(), single)

    for path, kind in kinds().items():
        if kind is None:
            _check_unread(path)
    place = Path(source).parent if is_pattern(source) else Path(source)
    name = place.stem if single else place.resolve().name
    return load_or_parse(digest, name, source, parse, reading=READING)


def _check_unread(path: Path) -> None:
    """Refuse a file whose kind only a later record shows, since the file would not be read."""
    try:
        found = ((at, kind_of(record.keys(), path)) for at, record in json_objects(path))
        number, kind = next((own for own in found if own[1] is not None), (0, None))
    except DataError:  # something else than JSON Lines lies there
        return
    if kind is not None:
        raise DataError(
            f"{path}:{number}: has the columns of a file of {_KINDS[kind][0]}, but the first "
            "record lacks some; give every record the same columns, null where it has no value, or "
            "move the file elsewhere"
        )


def _splits_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the split of each file: the last word of its name that names one, else ``train``.

    ``eval`` is the test split, and dev beside files of a test split.
    """
    named = {}
    for path in paths:
        words = [word for word in re.split("[^a-z]+", path.stem.lower()) if word in _SPLITS]
        named[path] = _SPLITS[words[-1]] if words else "train"
    evaluated = "dev" if "test" in named.values() else "test"
    return {path: evaluated if split == "eval" else split for path, split in named.items()}


def _parse(
    builder: DataBuilder, source: str, kinds: Mapping[Path, Kind | None], single: bool
) -> None:
    telling = [path for path, kind in kinds.items() if kind in _TELLING]
    named = dict.fromkeys(telling, "train") if single else _splits_of(telling)
    splits = {
        name: at
        for at, name in enumerate(own for own in ("train", "dev", "test") if own in named.values())
    }
    reader = _Reader(kinds, {path: splits[split] for path, split in named.items()})
    PairStore(builder, source, reader.batches, splits, lines=True).store()
    if is_pattern(source):
        builder.places.clear()  # they would be read below the pattern
    if reader.unused:
        builder.notes.append(f"unused columns: {shortened(', '.join(sorted(reader.unused)))}")
    train = builder.splits.get("train")
    for split, qrels in builder.splits.items():
        if train is not None and split != "train":
            shared = int(np.isin(qrels.query_rows, train.query_rows).sum())
            if shared:
                builder.notes.append(
                    f"{shared} of the {qrels.n_queries} queries of {split} are in train too"
                )
    _store_prompt(builder, list(reader.prompts))
    if len(kinds) > 1:
        parts = [
            f"{split} from {', '.join(shown(path.name) for path in named if named[path] == split)}"
            for split in dict.fromkeys(named.values())
        ]
        notes = [shortened("; ".join(parts), 300)]
        if others := ", ".join(shown(path.name) for path, kind in kinds.items() if kind is None):
            notes.append(f"not read, since no trainer's keys are in them: {shortened(others)}")
        builder.notes[:0] = notes


def _store_prompt(builder: DataBuilder, prompts: list[str]) -> None:
    """Keep the prompt that all lines share."""
    if len(prompts) == 1 and prompts[0]:
        builder.query_prompt = prompts[0]
        builder.notes.append(
            f"every line has the prompt {shown(prompts[0])}: it goes before each query, unless "
            "query_prompt says otherwise"
        )
    elif len(prompts) > 1:
        named = " and ".join(map(shown, prompts[:2]))
        builder.notes.append(
            f"the lines have {len(prompts)} different prompts, such as {named}: none is used; give "
            "one for all with query_prompt, or write them into the queries"
        )


class _Document(NamedTuple):
    """A document of a line; a text of ``None`` is in a corpus file, and the id stands for it."""

    text: str | None
    identifier: str | None = None
    title: str = ""
    score: float | None = None
    negative: bool = False


class _Line(NamedTuple):
    """A line of any of the files: a query, documents, or both."""

    place: str
    split: int
    query: str | None = None
    query_id: str | None = None
    documents: Sequence[_Document] = ()
    grade: float = np.nan


@dataclass
class _Reader:
    """Reads the files, texts first.

    Attributes:
        kinds: what each file is.
        splits: number of the split of each file with pairs.
        unused: columns found that nobody reads.
        prompts: all prompts found.
    """

    kinds: Mapping[Path, Kind | None]
    splits: Mapping[Path, int]
    unused: set[str] = field(default_factory=set)
    prompts: dict[str, None] = field(default_factory=dict)

    def batches(self) -> Iterator[PairBatch]:
        """Yield the lines of all files."""
        lines: list[_Line] = []
        characters = 0
        for kind, (_, required, optional) in _KINDS.items():
            for path in (path for path, own in self.kinds.items() if own == kind):
                for number, record in json_records(path, required, optional, others=True):
                    place = f"{path}:{number}"
                    lines.append(getattr(self, f"_{kind}")(place, self.splits.get(path, 0), record))
                    characters += sum(len(own.text or "") for own in lines[-1].documents)
                    if len(lines) == BATCH_LINES or characters >= BATCH_CHARACTERS:
                        yield _batch(lines)
                        lines, characters = [], 0
        if lines:
            yield _batch(lines)

    def _corpus(self, place: str, split: int, record: dict[str, Any]) -> _Line:
        identifier = _id(place, record, _id_key(record))
        title, text = (text_field(place, record, key) for key in ("title", "text"))
        return _Line(place, split, documents=[_Document(text, identifier, title)])

    def _queries(self, place: str, split: int, record: dict[str, Any]) -> _Line:
        identifier = _id(place, record, _id_key(record))
        return _Line(place, split, text_field(place, record, "text"), identifier)

    def _qrels(self, place: str, split: int, record: dict[str, Any]) -> _Line:
        grade = record.get("relevance", 1)
        grade = int(grade) if isinstance(grade, float) and grade.is_integer() else grade
        document = _Document(None, _id(place, record, "docid"))
        query = _id(place, record, "qid")
        return _Line(place, split, None, query, [document], check_grade(place, grade))

    def _flagembedding(self, place: str, split: int, record: dict[str, Any]) -> _Line:
        query = _filled(place, record, "query")
        documents = [*_texts(place, record, "pos"), *_texts(place, record, "neg")]
        self.unused |= record.keys() - {"query", "pos", "neg", "pos_scores", "neg_scores", "prompt"}
        self.prompts[text_field(place, record, "prompt")] = None
        return _Line(place, split, query, None, documents)

    def _tevatron(self, place: str, split: int, record: dict[str, Any]) -> _Line:
        query = _filled(place, record, "query" if "query" in record else "query_text")
        named = record.get("query_id") is not None
        query_id = _id(place, record, "query_id") if named else None
        documents = [*_passages(place, record, "positive"), *_passages(place, record, "negative")]
        self.unused |= record.keys() - set(_KINDS["tevatron"][2])
        self.prompts[""] = None
        return _Line(place, split, query, query_id, documents)


def _batch(lines: Sequence[_Line]) -> PairBatch:
    rows = [row for row, line in enumerate(lines) for _ in line.documents]
    documents = [own for line in lines for own in line.documents]
    scores = [np.nan if own.score is None else own.score for own in documents]

    def column(values: Iterable[str | None]) -> pa.StringArray:
        return pa.array(list(values), pa.string())

    return PairBatch(
        query=Texts(column(line.query for line in lines), column(line.query_id for line in lines)),
        document=Texts(
            column(own.text for own in documents),
            column(own.identifier for own in documents),
            column(own.title for own in documents),
            joined=True,
        ),
        row=np.array(rows, dtype=np.int64),
        negative=np.array([own.negative for own in documents], dtype=bool),
        split=np.array([line.split for line in lines], dtype=np.int8),
        place=lambda at: lines[at].place,
        grade=np.array([line.grade for line in lines], dtype=np.float64),
        score=np.array(scores, dtype=np.float64),
    )


def _filled(place: str, record: dict[str, Any], key: str) -> str:
    text = text_field(place, record, key)
    if not text.strip():
        raise DataError(f"{place}: column '{key}' must not be empty")
    return text


def _id(place: str, record: Mapping[str, Any], key: str) -> str:
    """Return an id, which may be a whole number."""
    value = record.get(key)
    value = str(value) if type(value) is int else value
    check_id(f"{place}: column '{key}'", value)
    return str(value)


def _id_key(record: Mapping[str, Any]) -> str:
    return "docid" if "docid" in record else "id"


def _list(place: str, record: dict[str, Any], key: str, of: type, what: str) -> list[Any]:
    values = record.get(key)
    values = [] if values is None else values
    if not isinstance(values, list) or not all(isinstance(value, of) for value in values):
        raise DataError(f"{place}: column '{key}' must be a list of {what}, got {shown(values)}")
    return values


def _texts(place: str, record: dict[str, Any], key: str) -> list[_Document]:
    """The texts of a column of FlagEmbedding, with a teacher's scores, null where there is none."""
    texts = _list(place, record, key, str, "strings")
    if key == "pos" and not texts:
        raise DataError(f"{place}: column 'pos' must hold at least one text")
    if key == "pos" and not all(text.strip() for text in texts):
        raise DataError(f"{place}: column 'pos' holds an empty text")
    column = f"{key}_scores"
    scores = _list(place, record, column, int | float | None, "numbers") or [None] * len(texts)  # type: ignore[arg-type]
    if any(isinstance(score, bool) for score in scores):
        raise DataError(
            f"{place}: column '{column}' must be a list of numbers, got {shown(scores)}"
        )
    if len(scores) != len(texts):
        raise DataError(
            f"{place}: column '{column}' has {len(scores)} numbers for the {len(texts)} texts of "
            f"'{key}'; there must be one for each"
        )
    if any(score is not None and abs(score) > _LARGEST for score in scores):
        problem = "holds a number too large for a score"
        raise DataError(f"{place}: column '{column}' {problem}, got {shown(scores)}")
    both = zip(texts, scores, strict=True)
    return [_Document(text, score=score, negative=key == "neg") for text, score in both]


def _passages(place: str, record: dict[str, Any], kind: str) -> list[_Document]:
    """The passages of a line of Tevatron, whole or as ids."""
    column, negative = f"{kind}_document_ids", kind == "negative"
    if record.get(column) is not None:
        ids = _list(place, record, column, object, "ids")
        found = [_Document(None, _id(place, {column: own}, column)) for own in ids]
    else:
        column = f"{kind}_passages"
        found = [
            _passage(place, column, own) for own in _list(place, record, column, dict, "objects")
        ]
        if not negative and not all(f"{own.title}{own.text}".strip() for own in found):
            raise DataError(f"{place}: column '{column}' holds an empty passage")
    if not (found or negative):
        raise DataError(f"{place}: column 'positive_passages' must hold at least one passage")
    return [own._replace(negative=negative) for own in found]


def _passage(place: str, column: str, passage: dict[str, Any]) -> _Document:
    where = f"{place}: column '{column}'"
    title = passage.get("title")
    title = "" if title is None else title
    for key, content in (("title", title), ("text", passage.get("text"))):
        if not isinstance(content, str):
            raise DataError(f"{where}: '{key}' must be a string, got {shown(content)}")
    identifier = passage.get("docid")
    identifier = str(identifier) if type(identifier) is int else identifier
    if identifier is not None:
        check_id(f"{where}: 'docid'", identifier)
    return _Document(passage["text"], identifier, title)
