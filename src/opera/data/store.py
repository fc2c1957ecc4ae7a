"""Store parsed data in the cache, by the hash of their source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from opera.core.cache import cached
from opera.core.errors import DataError, OperaError
from opera.core.files import ADVICE, open_file, storage_error
from opera.core.terminal import error_summary
from opera.data.names import DataName
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.retrieval_data import RetrievalData
from opera.data.texts import (
    TEXT_SCHEMA,
    TextTable,
    batched,
    empty_text_notes,
    open_arrow,
)

LAYOUT = "8"
"""Part of every key. Change it with the format of stored files, or the parsing of sources."""

FINGERPRINT, SKIPPED, ARRAYS = "fingerprint", "skipped.arrow", "arrays.npz"
SKIPPED_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())]
)
"""Rows that were left out. In a file without lines, ``line`` is the number of the row."""

Arrays = TypeVar("Arrays", Qrels, DocumentLists, TeacherScores)


def digest_files(paths: Iterable[Path], salt: str) -> str:
    """SHA-256 of the names and contents of files, in hex.

    Raises:
        DataError: for a file that cannot be read.
    """
    total = hashlib.sha256(salt.encode())
    for path in paths:
        try:
            with open_file(path) as file:
                total.update(
                    f"\0{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode()
                )
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return total.hexdigest()


@contextmanager
def library_errors(source: str, folder: Path, advice: str) -> Iterator[None]:
    """Turn an error of the library that reads ``source`` into one sentence with advice.

    ``folder`` has the files of the library, for errors such as a full disk.
    """
    try:
        yield
    except (OperaError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in ADVICE:
            raise storage_error(folder, error) from error
        raise DataError(
            f"{source}: cannot be read ({error_summary(error.__cause__ or error)}); {advice}"
        ) from error


@dataclass
class DataBuilder:
    """The data of a parser: texts on disk, qrels in memory.

    Attributes:
        folder: the folder of the Arrow files.
        splits: qrels by split name.
        given_negatives: negatives that came with the data.
        teacher: scores of a teacher that came with the data.
        query_prompt: the prompt of the queries that came with the data.
        notes: sentences about merged and dropped data.
        tables: the texts written so far, ``corpus`` and ``queries``.
    """

    folder: Path
    splits: dict[str, Qrels] = field(default_factory=dict)
    given_negatives: DocumentLists | None = None
    teacher: TeacherScores | None = None
    query_prompt: str | None = None
    notes: list[str] = field(default_factory=list)
    tables: dict[str, TextTable] = field(default_factory=dict)

    def write_skipped(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Write the rows that were left out: file, line, reason and text."""
        batches = (
            pa.record_batch(list(map(pa.array, zip(*batch, strict=True))), schema=SKIPPED_SCHEMA)
            for batch in batched(rows)
        )
        self._write(SKIPPED, SKIPPED_SCHEMA, batches)

    def write_texts(self, kind: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Write ``corpus`` or ``queries`` to disk, and memory-map the table.

        The batches have the columns id, title and text.
        """
        path = self._write(f"{kind}.arrow", TEXT_SCHEMA, batches)
        self.tables[kind] = TextTable(open_arrow(path))

    def _write(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Path:
        path = self.folder / name
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return path


def load_or_parse(
    key: str,
    name: str,
    source: DataName,
    parse: Callable[[DataBuilder], None],
) -> RetrievalData:
    """Load the data that are stored under a key; if there are none, parse and store them first.

    Args:
        key: the SHA-256 of the source's files or name, and of everything that decides how to read
            it.
        name: short name, for tables.
        source: the user's argument.
        parse: fills a builder. If it raises an error, the cache stores nothing.
    """

    def write(folder: Path) -> None:
        builder = DataBuilder(folder)
        parse(builder)
        builder.notes += empty_text_notes(builder.tables["corpus"], builder.tables["queries"])
        _write(builder)
        contents = [folder / name for name in ("corpus.arrow", "queries.arrow", ARRAYS)]
        fingerprint = digest_files(contents, f"contents\0{builder.query_prompt}")
        (folder / FINGERPRINT).write_text(fingerprint, encoding="utf-8")

    name_in_cache = hashlib.sha256(f"{LAYOUT}\0{key}".encode()).hexdigest()[:32]
    home = cached("data", name_in_cache, lambda folder, _: write(folder))
    fingerprint = (home / FINGERPRINT).read_text(encoding="utf-8")
    return RetrievalData(name, source, fingerprint, **_stored_fields(home))


def _write(builder: DataBuilder) -> None:
    """Write the data without the texts: arrays by name and field, the rest as JSON."""
    parts: list[tuple[str, Any]] = [*builder.splits.items()]
    parts += [("negatives", builder.given_negatives), ("teacher", builder.teacher)]
    arrays = {
        f"{name}/{field.name}": values
        for name, stored in parts
        if stored is not None
        for field in fields(stored)
        if (values := getattr(stored, field.name)) is not None
    }
    np.savez(builder.folder / ARRAYS, **arrays)
    about: dict[str, Any] = {
        "splits": list(builder.splits),
        "notes": builder.notes,
        "negatives": builder.given_negatives is not None,
        "query_prompt": builder.query_prompt,
    }
    (builder.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _stored_fields(home: Path) -> dict[str, Any]:
    about = json.loads((home / "about.json").read_text(encoding="utf-8"))
    with np.load(home / ARRAYS) as arrays:

        def read(kind: type[Arrays], name: str) -> Arrays:
            return kind(*(arrays.get(f"{name}/{field.name}") for field in fields(kind)))

        return {
            "splits": {split: read(Qrels, split) for split in about["splits"]},
            "given_negatives": read(DocumentLists, "negatives") if about["negatives"] else None,
            "teacher": read(TeacherScores, "teacher") if "teacher/scores" in arrays else None,
            "corpus": TextTable.open(home / "corpus.arrow"),
            "queries": TextTable.open(home / "queries.arrow"),
            "skipped": open_arrow(home / SKIPPED) if (home / SKIPPED).exists() else None,
            "query_prompt": about.get("query_prompt"),
            "notes": tuple(about["notes"]),
        }
