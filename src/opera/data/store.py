"""Parsed data in the cache, by the hash of what was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.cache import MANIFEST, cache_folder, cached
from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shown
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.teacher import TeacherScores
from opera.data.texts import TEXT_SCHEMA, TextRow, TextTable, text_batches

LAYOUT = (
    "2"  # part of every key: change it when the stored files, or how sources are parsed, change
)
QRELS_ARRAYS = ("query_rows", "offsets", "doc_rows", "grades")
TEACHER_ARRAYS = ("query_rows", "doc_rows", "scores")


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
        failed: Exception | None = None
        try:
            parse(builder)
            builder.notes += empty_text_notes(builder.tables["corpus"], builder.tables["queries"])
            _write_arrays(builder)
        except (LookupError, ValueError, TypeError, StopIteration) as error:
            failed = error
        if digest() != key:
            raise DataError(f"{source}: changed while it was read; run the command again")
        if failed is not None:
            raise failed

    entry = hashlib.sha256(f"{key}\0{reading}".encode()).hexdigest() if reading else key
    home = cached("data", entry[:32], write)
    return {"fingerprint": _stored_digest(home) if named else key, **_stored_fields(home, source)}


def stored_entry(digest: str) -> Path | None:
    """Return the folder of the cached data of a digest, not verified; ``None``: there is none."""
    home = cache_folder() / "data" / digest[:32]
    return home if (home / MANIFEST).is_file() else None


def _stored_digest(home: Path) -> str:
    """SHA-256 of the checksums of an entry's files."""
    manifest = json.loads((home / MANIFEST).read_text(encoding="utf-8"))
    return hashlib.sha256(
        f"{LAYOUT}\0{json.dumps(manifest['files'], sort_keys=True)}".encode()
    ).hexdigest()


def _write_arrays(builder: DataBuilder) -> None:
    arrays: dict[str, Any] = {}
    for split, qrels in builder.splits.items():
        for part in QRELS_ARRAYS:
            arrays[f"{split}/{part}"] = getattr(qrels, part)
        if qrels.weights is not None:
            arrays[f"{split}/weights"] = qrels.weights
    if builder.given_negatives is not None:
        arrays["negatives/offsets"] = builder.given_negatives.offsets
        arrays["negatives/doc_rows"] = builder.given_negatives.doc_rows
    if builder.teacher is not None:
        arrays |= {f"teacher/{part}": getattr(builder.teacher, part) for part in TEACHER_ARRAYS}
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
    fields: dict[str, Any] = {}
    with np.load(home / "arrays.npz") as arrays:
        fields["splits"] = {
            split: Qrels(
                **{part: arrays[f"{split}/{part}"] for part in QRELS_ARRAYS},
                weights=arrays.get(f"{split}/weights"),
            )
            for split in about["splits"]
        }
        if "teacher/scores" in arrays:
            scores = (arrays[f"teacher/{part}"] for part in TEACHER_ARRAYS)
            fields["teacher"] = TeacherScores(*scores)
        if about["negatives"]:
            negatives = GivenNegatives(arrays["negatives/offsets"], arrays["negatives/doc_rows"])
            fields["given_negatives"] = negatives
    places = {(query, doc): f"{source}/{place}" for query, doc, place in about["places"]}
    return fields | {
        "corpus": TextTable.open(home / "corpus.arrow"),
        "queries": TextTable.open(home / "queries.arrow"),
        "query_prompt": about.get("query_prompt"),
        "notes": tuple(about["notes"]),
        "places": places,
        "left_out": about.get("left_out", {}),
    }


def empty_text_notes(corpus: TextTable, queries: TextTable) -> list[str]:
    """Count the documents and queries without a text: notes for those who read the data."""
    notes = []
    for kind, table, use in (
        (
            "documents without title and text",
            corpus,
            "they are kept and ranked, and are no negatives",
        ),
        ("queries without a text", queries, "they are kept, and not used"),
    ):
        rows = table.empty_rows()
        if len(rows):
            notes.append(f"{len(rows):,} {kind}, such as {shown(table.ids(rows[:1])[0])}: {use}")
    return notes
