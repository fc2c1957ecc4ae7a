"""The cache of parsed data: one folder per content hash in the user's cache, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa

from opera.data.qrels import GivenNegatives, Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.texts import TEXT_SCHEMA, TextRow, TextTable, text_batches

LAYOUT = "1"  # part of every key: change it when the stored files, or how sources are parsed, change
QRELS_ARRAYS = ("query_rows", "offsets", "doc_rows", "grades")


def cache_folder() -> Path:
    """Return the folder of the cache: ``$OPERA_CACHE``, or the user's cache folder. All of it can be made again."""
    return Path(os.environ.get("OPERA_CACHE") or platformdirs.user_cache_dir("opera"))


def digest_files(paths: Iterable[Path], salt: str) -> str:
    """SHA-256 of the names and contents of files, in hex."""
    total = hashlib.sha256(f"{LAYOUT}\0{salt}".encode())
    for path in paths:
        with path.open("rb") as file:
            total.update(f"\0{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return total.hexdigest()


@dataclass
class DataBuilder:
    """What a parser fills: texts on disk, qrels in memory.

    Attributes:
        folder: where the Arrow files are written.
        splits: qrels by split name.
        given_negatives: negatives that came with the data.
        notes: what was merged or dropped, in plain sentences.
    """

    folder: Path
    splits: dict[str, Qrels] = field(default_factory=dict)
    given_negatives: GivenNegatives | None = None
    notes: list[str] = field(default_factory=list)

    def write_texts(self, kind: str, rows: Iterable[TextRow]) -> TextTable:
        """Write ``corpus`` or ``queries`` to disk and return the table, memory-mapped."""
        path = self.folder / f"{kind}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TEXT_SCHEMA) as writer:
            for batch in text_batches(rows):
                writer.write_batch(batch)
        return TextTable.open(path)


def load_or_parse(key: str, name: str, source: str, parse: Callable[[DataBuilder], None]) -> RetrievalData:
    """Load the data cached under ``key``; if there are none, parse and cache them first.

    Args:
        key: SHA-256 of what the data are made of; becomes their fingerprint.
        name: short name, for tables.
        source: what the user passed.
        parse: fills a builder. If it raises, nothing is cached.
    """
    home = cache_folder() / "data" / key[:32]
    if not (home / "about.json").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".reading-", dir=home.parent))
        try:
            builder = DataBuilder(folder)
            parse(builder)
            _write_arrays(builder)
            with suppress(OSError):  # another process was faster and wrote the same data
                folder.rename(home)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return _load(home, key, name, source)


def _write_arrays(builder: DataBuilder) -> None:
    arrays: dict[str, Any] = {}
    for split, qrels in builder.splits.items():
        for part in QRELS_ARRAYS:
            arrays[f"{split}/{part}"] = getattr(qrels, part)
    if builder.given_negatives is not None:
        arrays["negatives/offsets"] = builder.given_negatives.offsets
        arrays["negatives/doc_rows"] = builder.given_negatives.doc_rows
    np.savez(builder.folder / "arrays.npz", **arrays)
    about = {
        "splits": list(builder.splits),
        "notes": builder.notes,
        "negatives": builder.given_negatives is not None,
    }
    (builder.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _load(home: Path, key: str, name: str, source: str) -> RetrievalData:
    about = json.loads((home / "about.json").read_text(encoding="utf-8"))
    negatives = None
    with np.load(home / "arrays.npz") as arrays:
        splits = {split: Qrels(*(arrays[f"{split}/{part}"] for part in QRELS_ARRAYS)) for split in about["splits"]}
        if about["negatives"]:
            negatives = GivenNegatives(arrays["negatives/offsets"], arrays["negatives/doc_rows"])
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
