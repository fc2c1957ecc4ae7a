"""Parsed data in the cache, by the hash of what was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from opera.core.cache import cached
from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shown
from opera.data.qrels import GivenNegatives, Qrels, TeacherScores
from opera.data.texts import (
    BATCH_CHARACTERS,
    BATCH_ROWS,
    TEXT_SCHEMA,
    TextRow,
    TextTable,
    batched,
    text_batches,
)

LAYOUT = "2"
"""Part of every key: change it when the stored files, or how sources are parsed, change."""

SKIPPED = "skipped.arrow"
FINGERPRINT = "fingerprint"
SKIPPED_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())]
)
"""Rows that were left out; ``line`` is the number of the row in a file without lines."""

Arrays = TypeVar("Arrays", Qrels, GivenNegatives, TeacherScores)


def digest_files(paths: Iterable[Path], salt: str) -> str:
    """SHA-256 of the names and contents of files, in hex.

    Raises:
        DataError: for a file that cannot be read.
    """
    total = hashlib.sha256(f"{LAYOUT}\0{salt}".encode())
    for path in paths:
        try:
            with open_file(path) as file:
                total.update(
                    f"\0{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode()
                )
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return total.hexdigest()


@dataclass
class DataBuilder:
    """What a parser fills: texts on disk, qrels in memory.

    Attributes:
        folder: where the Arrow files are written.
        splits: qrels by split name.
        given_negatives: negatives that came with the data.
        teacher: scores of a teacher that came with the data.
        query_prompt: what the data put before each query.
        notes: what was merged or dropped, in plain sentences.
        tables: the texts written so far, ``corpus`` and ``queries``.
        places: file and line of judgements that name an empty text, by the rows of query and
            document; relative to the source.
        left_out: relevant pairs of a published set that name an empty text and were left out, by
            split.
    """

    folder: Path
    splits: dict[str, Qrels] = field(default_factory=dict)
    given_negatives: GivenNegatives | None = None
    teacher: TeacherScores | None = None
    query_prompt: str | None = None
    notes: list[str] = field(default_factory=list)
    tables: dict[str, TextTable] = field(default_factory=dict)
    places: dict[tuple[int, int], str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    def write_skipped(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Write the rows that were left out: file, line, reason and text of each."""
        path = self.folder / SKIPPED
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SKIPPED_SCHEMA) as writer:
            for batch in batched(rows, BATCH_ROWS, BATCH_CHARACTERS):
                columns = [pa.array(own) for own in zip(*batch, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=SKIPPED_SCHEMA))

    def write_texts(self, kind: str, rows: Iterable[TextRow]) -> TextTable:
        """Write ``corpus`` or ``queries`` to disk and return the table, memory-mapped."""
        path = self.folder / f"{kind}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TEXT_SCHEMA) as writer:
            for batch in text_batches(rows):
                writer.write_batch(batch)
        self.tables[kind] = TextTable.open(path)
        return self.tables[kind]


def fields_of(
    digest: Callable[[], str],
    source: str,
    parse: Callable[[DataBuilder], None],
    *,
    named: bool = False,
    reading: str = "",
) -> dict[str, Any]:
    """Return what is stored of data under their digest, by the fields of a data set.

    If there is none, parse and store it first.

    Args:
        digest: computes the SHA-256 of what the data are made of, which becomes their fingerprint.
            It is called again after parsing.
        source: what the user passed.
        parse: fills a builder. If it raises, nothing is stored.
        named: whether the digest is of a name and not of contents; the fingerprint is then that of
            the stored files.
        reading: changes when the parser reads more of the same files: what is stored is made anew,
            and the fingerprint stays.

    Raises:
        DataError: if the data changed while they were read.
    """
    key = digest()

    def write(folder: Path) -> None:
        builder = DataBuilder(folder)
        try:
            parse(builder)
            builder.notes += empty_text_notes(builder.tables["corpus"], builder.tables["queries"])
            _write(builder)
        except (LookupError, ValueError, TypeError, StopIteration):
            _check_unchanged(key, digest, source)
            raise
        _check_unchanged(key, digest, source)
        if named:
            fingerprint = digest_files(sorted(folder.iterdir()), "")
            (folder / FINGERPRINT).write_text(fingerprint, encoding="utf-8")

    entry = hashlib.sha256(f"{key}\0{reading}".encode()).hexdigest() if reading else key
    home = cached("data", entry[:32], lambda folder, _: write(folder))
    fingerprint = key
    if named:
        fingerprint = (home / FINGERPRINT).read_text(encoding="utf-8")
    return {"fingerprint": fingerprint, **_stored_fields(home, source)}


def _check_unchanged(key: str, digest: Callable[[], str], source: str) -> None:
    if digest() != key:
        raise DataError(f"{source}: changed while it was read; run the command again") from None


def _write(builder: DataBuilder) -> None:
    """Write everything but the texts: arrays by name and field, the rest as JSON."""
    parts: list[tuple[str, Any]] = [*builder.splits.items()]
    parts += [("negatives", builder.given_negatives), ("teacher", builder.teacher)]
    arrays = {
        f"{name}/{field.name}": values
        for name, part in parts
        if part is not None
        for field in fields(part)
        if (values := getattr(part, field.name)) is not None
    }
    np.savez(builder.folder / "arrays.npz", **arrays)
    about: dict[str, Any] = {
        "splits": list(builder.splits),
        "notes": builder.notes,
        "negatives": builder.given_negatives is not None,
        "places": [[query, doc, place] for (query, doc), place in builder.places.items()],
    }
    if builder.left_out:
        about["left_out"] = builder.left_out
    if builder.query_prompt is not None:
        about["query_prompt"] = builder.query_prompt
    (builder.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _stored_fields(home: Path, source: str) -> dict[str, Any]:
    about = json.loads((home / "about.json").read_text(encoding="utf-8"))
    with np.load(home / "arrays.npz") as arrays:

        def read(kind: type[Arrays], name: str) -> Arrays:
            return kind(*(arrays.get(f"{name}/{field.name}") for field in fields(kind)))

        scored = "teacher/scores" in arrays

        return {
            "splits": {split: read(Qrels, split) for split in about["splits"]},
            "given_negatives": read(GivenNegatives, "negatives") if about["negatives"] else None,
            "teacher": read(TeacherScores, "teacher") if scored else None,
            "corpus": TextTable.open(home / "corpus.arrow"),
            "queries": TextTable.open(home / "queries.arrow"),
            "skipped": _opened(home / SKIPPED),
            "query_prompt": about.get("query_prompt"),
            "notes": tuple(about["notes"]),
            "places": {(query, doc): f"{source}/{place}" for query, doc, place in about["places"]},
            "left_out": about.get("left_out", {}),
        }


def _opened(path: Path) -> pa.Table | None:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all() if path.exists() else None


def empty_text_notes(corpus: TextTable, queries: TextTable) -> list[str]:
    """Count the documents and queries without a text: notes for those who read the data."""
    without = [
        (corpus, "documents without title and text", "kept and ranked, and are no negatives"),
        (queries, "queries without a text", "kept, and not used"),
    ]
    return [
        f"{len(rows):,} {kind}, such as {shown(table.ids(rows[:1])[0])}: they are {use}"
        for table, kind, use in without
        if len(rows := table.empty_rows())
    ]
