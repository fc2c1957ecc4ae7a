"""The folder of a trained reranker: the only module that knows its file names.

    FOLDER/
      reranker.json         data, models, settings, steps, seconds, and the results on test
      per_query.parquet     a row per test query: each measure of each search
      pairs.parquet         a row per training pair: its ids, and what its first visit says
      suspicious_pairs.csv  pairs that look wrong, the worst first, if that is known
      model/                loads with CrossEncoder(path)

The folder is written at once, when the training and the measuring are done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.arguments import user_path
from opera.core.errors import RunFolderError
from opera.core.figures import PRIMARY, in_points
from opera.core.files import check_folder, foreign_files
from opera.core.terminal import shown_path
from opera.run_folder.folder import (
    MODEL_FILES,
    MODEL_FOLDER,
    PAIRS_FILE,
    PER_QUERY_FILE,
    RERANKER_FILE,
    SUSPICIOUS_FILE,
)
from opera.run_folder.housekeeping import can_be_exchanged
from opera.run_folder.reading import RecordPart, read_model, read_table
from opera.run_folder.record import DataRecord, NoisyLabelsRecord
from opera.run_folder.summary import Change


class RerankerRecord(RecordPart):
    """The contents of ``reranker.json``.

    Attributes:
        data: the data set.
        model: the base model as the user named it.
        new_head: whether the base model had no head, so that only the first stage is "before".
        first_stage: ``bm25``, or the model that ranks all documents.
        depth: how many documents of each query the reranker sorts.
        method: the method that sampled the training pairs.
        settings: the settings of the training.
        steps: the number of optimizer steps.
        seed: the random seed.
        seconds: of each phase.
        seconds_per_query: the time to score the documents of a test query; ``None`` if the cache
            held all scores.
        measures: means on the test split of ``first_stage``, maybe ``base``, and ``final``.
        changes: from the first stage to the final model, by measure.
        changes_from_base: from the base model to the final model; empty if its head was new.
        noisy_labels: how many training pairs look wrong; ``None`` if too few were ranked among
            enough documents, as with most methods but ``denoise``.
        versions: of the packages.
    """

    data: DataRecord
    model: str
    new_head: bool
    first_stage: str
    depth: int
    method: str
    settings: dict[str, Any]
    steps: int
    seed: int
    seconds: dict[str, float]
    seconds_per_query: float | None
    measures: dict[str, dict[str, float]]
    changes: dict[str, Change]
    changes_from_base: dict[str, Change]
    noisy_labels: NoisyLabelsRecord | None = None
    versions: dict[str, str]


@dataclass(frozen=True)
class RerankerRun:
    """Read access to the folder of a trained reranker. Does not import torch.

    Attributes:
        path: the folder.
    """

    path: Path

    def __repr__(self) -> str:
        return f"RerankerRun({str(self.path)!r}: {self.headline})"

    @classmethod
    def open(cls, path: str | Path) -> RerankerRun:
        """Open the folder of a reranker.

        Raises:
            RunFolderError: if the folder holds none, or its record is damaged.
        """
        folder = user_path(path, "run")
        if not holds_reranker(folder):
            raise RunFolderError(f"{path}: holds no reranker: it has no {RERANKER_FILE}")
        run = cls(folder)
        run.record  # noqa: B018  # raises
        return run

    @cached_property
    def record(self) -> RerankerRecord:
        """The contents of ``reranker.json``."""
        return read_model(self.path / RERANKER_FILE, RerankerRecord)

    @property
    def model_path(self) -> Path:
        """The trained model, a plain folder of sentence-transformers."""
        return self.path / MODEL_FOLDER

    def per_query(self) -> pa.Table:
        """Return a row per test query: ``query_id``, and each measure of each search."""
        return read_table(self.path / PER_QUERY_FILE)

    def pairs(self) -> pa.Table:
        """Return a row per training pair: ``query_id``, ``doc_id``, and what its first visit says
        of its label."""
        return read_table(self.path / PAIRS_FILE)

    @property
    def verdict(self) -> str:
        """Whether the reranker is ``better`` or ``worse`` than its first stage, or ``no gain``."""
        change = self.record.changes[PRIMARY]
        return "better" if change.low > 0 else "worse" if change.high < 0 else "no gain"

    @property
    def headline(self) -> str:
        """Say whether the reranker is better than its first stage alone."""
        record, change = self.record, self.record.changes[PRIMARY]
        words = {"better": "is better", "worse": "is worse", "no gain": "is not measurably better"}
        before, after = (in_points(record.measures[name][PRIMARY]) for name in SEARCHES)
        stage = "BM25" if record.first_stage == "bm25" else record.first_stage
        interval = f" ({change.interval_in_points()})" if change.interval_in_points() else ""
        return (
            f"The reranker {words[self.verdict]} than {stage} alone on held-out questions: "
            f"{PRIMARY} {before} → {after}{interval}"
        )


SEARCHES = "first_stage", "final"
RERANKER_NAMES = (RERANKER_FILE, PER_QUERY_FILE, PAIRS_FILE, SUSPICIOUS_FILE, MODEL_FOLDER)
"""The names in the folder, which ``--overwrite`` replaces."""


def holds_reranker(path: Path) -> bool:
    """Whether a folder has the record of a reranker."""
    return os.path.lexists(path / RERANKER_FILE)


def check_reranker_folder(path: Path, overwrite: bool) -> None:
    """Reject an output folder that is not free. This writes nothing.

    Raises:
        RunFolderError: if the folder holds a reranker without ``overwrite``, or other files.
    """
    check_folder(path, "--out")
    if path.is_dir() and not can_be_exchanged(path.resolve()):
        raise RunFolderError(
            f"--out {path}: the folder is written at once, so it must not be a mount point or the "
            "current folder; pass a new folder"
        )
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not holds_reranker(path):
        raise RunFolderError(
            f"--out {path}: is not empty and holds no reranker; pass an empty or a new folder"
        )
    if not overwrite:
        raise RunFolderError(
            f"--out {path}: holds a reranker; pass --overwrite to replace it, or another folder"
        )
    files = [file for file in path.iterdir() if file.name not in RERANKER_NAMES]
    if not (path / MODEL_FOLDER).is_symlink():
        files += foreign_files(path / MODEL_FOLDER, MODEL_FILES)
    if files:
        raise RunFolderError(
            f"--out {path}: --overwrite would delete {shown_path(files[0])}, which OPERA did not "
            "write; move it away, or pass another folder"
        )
