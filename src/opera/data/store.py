"""Where parsed data is kept: one folder per content hash in the user's cache, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa

from opera.data.qrels import GivenNegatives, Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.texts import TEXT_SCHEMA, TextTable

LAYOUT = "1"  # part of every key: change it when what is stored, or how sources are read, changes
BATCH_ROWS = 50_000

TextRow = tuple[str, str, str]  # id, title, text


def cache_folder() -> Path:
    """Return the folder for data and encodings that can be made again: ``$OPERA_CACHE``, or the user's cache."""
    return Path(os.environ.get("OPERA_CACHE") or platformdirs.user_cache_dir("opera"))


def digest_files(paths: Iterable[Path], salt: str) -> str:
    """SHA-256 over the names and contents of some files, in hex."""
    total = hashlib.sha256(f"{LAYOUT}\0{salt}".encode())
    for path in paths:
        with path.open("rb") as file:
            total.update(f"\0{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return total.hexdigest()


@dataclass
class Draft:
    """Data being read: where a reader puts texts and qrels before they are stored.

    Attributes:
        folder: where the Arrow files are written.
        splits: judgements by split name.
        given_negatives: negatives that came with the data.
        notes: what was merged or dropped.
    """

    folder: Path
    splits: dict[str, Qrels] = field(default_factory=dict)
    given_negatives: GivenNegatives | None = None
    notes: list[str] = field(default_factory=list)

    def write_texts(self, kind: str, rows: Iterable[TextRow]) -> TextTable:
        """Write ``corpus`` or ``queries`` and return them, memory-mapped."""
        path = self.folder / f"{kind}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TEXT_SCHEMA) as writer:
            for batch in _batches(rows):
                columns = [pa.array(column, pa.string()) for column in zip(*batch, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=TEXT_SCHEMA))
        return TextTable.open(path)


def stored(key: str, name: str, source: str, read: Callable[[Draft], None]) -> RetrievalData:
    """Return the data stored under ``key``, reading and storing it first where it is not there yet."""
    home = cache_folder() / "data" / key[:32]
    if not (home / "about.json").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".reading-", dir=home.parent))
        try:
            draft = Draft(folder)
            read(draft)
            _finish(draft)
            with suppress(OSError):  # another process was first; what it wrote is the same
                folder.rename(home)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return _open(home, key, name, source)


def _finish(draft: Draft) -> None:
    arrays: dict[str, Any] = {}
    for split, qrels in draft.splits.items():
        for part in ("query_rows", "offsets", "doc_rows", "grades"):
            arrays[f"{split}/{part}"] = getattr(qrels, part)
    if draft.given_negatives is not None:
        arrays["negatives/offsets"] = draft.given_negatives.offsets
        arrays["negatives/doc_rows"] = draft.given_negatives.doc_rows
    np.savez(draft.folder / "arrays.npz", **arrays)
    about = {
        "splits": list(draft.splits),
        "notes": draft.notes,
        "negatives": draft.given_negatives is not None,
    }
    (draft.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _open(home: Path, key: str, name: str, source: str) -> RetrievalData:
    about = json.loads((home / "about.json").read_text(encoding="utf-8"))
    with np.load(home / "arrays.npz") as arrays:
        splits = {
            split: Qrels(*(arrays[f"{split}/{p}"] for p in ("query_rows", "offsets", "doc_rows", "grades")))
            for split in about["splits"]
        }
        negatives = (
            GivenNegatives(arrays["negatives/offsets"], arrays["negatives/doc_rows"]) if about["negatives"] else None
        )
    return RetrievalData(
        name=name,
        source=source,
        fingerprint=key,
        corpus=TextTable.open(home / "corpus.arrow"),
        queries=TextTable.open(home / "queries.arrow"),
        splits=splits,
        given_negatives=negatives,
        notes=tuple(about["notes"]),
    )


def _batches(rows: Iterable[TextRow]) -> Iterator[list[TextRow]]:
    batch: list[TextRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
