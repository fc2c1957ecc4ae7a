"""The run folder: the only module that knows its file names.

    RUN/
      run.json            settings, versions, seed, fingerprints, seconds of each phase
      run.log             what the run said, with details that the screen leaves out
      measures.json       {"base": {...}, "fine_tuned": {...}, "final": {...}} on the test split
      per_query.parquet   a row per test query
      pairs.parquet       a row per training pair: how often it was drawn
      suspicious_pairs.csv  the training pairs that look wrong, the worst first
      review.json         what opera review shows
      review.html, test_review.html  the pages that it writes
      trace.parquet       a row per step
      draws.parquet       the pairs that each step drew
      skipped_rows.csv    rows of tables that were left out: file, line, reason, text
      model/              loads with SentenceTransformer(path)
      checkpoints/        what --resume continues from
      not_finite.json     after a loss that was no number: the pairs of that batch
      trial/              of a run that trained twice: the training that chose the share

Every file is written under a temporary name and then renamed, so a killed process leaves the old
file or the new one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from opera.config.trainer import PRIMARY
from opera.core.errors import RunFolderError
from opera.core.files import replace_file, replace_folder, write_parquet
from opera.core.paths import user_path
from opera.core.storage import writing
from opera.runs.reading import TEXT, WHOLE, read_model, read_object, read_table
from opera.runs.record import Measures, RunRecord, TrainingRecord
from opera.runs.review_record import ReviewRecord
from opera.runs.verdict import verdict_words

log = logging.getLogger("opera")

RUN_FILE = "run.json"
MEASURES_FILE = "measures.json"
PER_QUERY_FILE = "per_query.parquet"
PAIRS_FILE = "pairs.parquet"
SUSPICIOUS_FILE = "suspicious_pairs.csv"
LOG_FILE = "run.log"
REVIEW_ITEMS_FILE = "review.json"
REVIEW_FILE, TEST_REVIEW_FILE = "review.html", "test_review.html"
TRACE_FILE = "trace.parquet"
DRAWS_FILE = "draws.parquet"
SKIPPED_FILE = "skipped_rows.csv"
MODEL_FOLDER = "model"
CARD_FILE, RECIPE_FILE = "README.md", "recipe.yaml"
ADAPTER_FILE = "adapter.npz"
CHECKPOINTS_FOLDER = "checkpoints"
TRIAL_FOLDER = "trial"
SAMPLER_FILE = "sampler.npz"
COMPLETE_FILE = "complete"
NOT_FINITE_FILE = "not_finite.json"
REPORT_FILE = "report.html"
UNFINISHED = "this run is not finished; continue it with --resume"
REPORT_MARK, MARK_WITHIN = b'<meta name="generator" content="OPERA report">', 1000
"""What a report has among its first bytes, so that a later one may take its place."""
RUN_NAMES = (
    RUN_FILE,
    LOG_FILE,
    NOT_FINITE_FILE,
    MEASURES_FILE,
    PER_QUERY_FILE,
    PAIRS_FILE,
    SUSPICIOUS_FILE,
    REVIEW_ITEMS_FILE,
    REVIEW_FILE,
    TEST_REVIEW_FILE,
    TRACE_FILE,
    DRAWS_FILE,
    SKIPPED_FILE,
    MODEL_FOLDER,
    CHECKPOINTS_FOLDER,
    TRIAL_FOLDER,
)
"""What OPERA writes to a run folder, and what ``--overwrite`` removes."""
MODEL_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "*modules.json", "*config*.json"),
    *("*tokenizer.json", "*_map.json", "*tokens.json", "*vocab*", "*merges.txt", "*.model"),
    *("*.jinja", f"*{CARD_FILE}", RECIPE_FILE, ADAPTER_FILE, "adapter.py"),
    *("*.onnx", "*.onnx.data", "*export.json"),
)
"""Files of models: what ``--overwrite`` replaces in a model's folder, and what ``opera push``
uploads."""


@dataclass(frozen=True)
class Run:
    """A run folder, for reading; nothing here needs torch.

    Attributes:
        path: the folder.
    """

    path: Path

    def __repr__(self) -> str:
        try:
            if not self.finished:
                return f"Run({str(self.path)!r}, {self.record.status})"
            base, final = (self.measures[when][PRIMARY] for when in ("base", "final"))
            verdict = "" if self.record.guard is None else f", {verdict_words(self.record.guard)}"
        except (RunFolderError, KeyError):
            return f"Run({str(self.path)!r}, cannot be read)"
        change = f"{PRIMARY} {base:.3f} to {final:.3f} on test{verdict}"
        return f"Run({str(self.path)!r}, {self.settings['method']}, {self.steps} steps: {change})"

    def _repr_html_(self) -> str | None:
        if not self.finished:
            return None
        from opera.runs.notebook import run_html  # imports this module

        return run_html(self)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run.

        Raises:
            RunFolderError: if the folder holds no run, or one whose ``run.json`` cannot be read.
        """
        run = run_in(user_path(path, "run"))
        if run is None:
            raise RunFolderError(f"{path}: not a run folder: it holds no {RUN_FILE} of OPERA")
        return run

    @cached_property
    def record(self) -> RunRecord:
        """The contents of ``run.json``.

        Raises:
            OtherFormatError: if another version of OPERA wrote it.
        """
        return RunRecord.read(self.path / RUN_FILE)

    @property
    def finished(self) -> bool:
        """Whether the run went through to its last measure."""
        return self.record.status == "finished"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings under their own names."""
        return dict(self.record.settings)

    @cached_property
    def measures(self) -> dict[str, dict[str, float]]:
        """``{"base": {measure: mean}, "fine_tuned": {...}, "final": {...}}`` on the test split.

        ``fine_tuned`` is the model as trained, ``final`` the final model.

        Raises:
            RunFolderError: if ``measures.json`` is missing or holds anything else.
        """
        return read_model(self.path / MEASURES_FILE, Measures).model_dump()

    @property
    def training(self) -> TrainingRecord:
        """How training went.

        Raises:
            RunFolderError: if the run is not finished.
        """
        training = self.record.training
        if training is None:
            raise RunFolderError(f"{self.path}: {UNFINISHED}")
        return training

    @property
    def steps(self) -> int:
        """How many optimizer steps the finished run took."""
        return self.training.steps

    @property
    def model_path(self) -> Path:
        """The trained model, a plain sentence-transformers folder."""
        return self.path / MODEL_FOLDER

    def per_query(self) -> pa.Table:
        """A row per test query.

        Its columns are ``query_id``, the ids of its ``relevant`` documents and their ``grades``,
        the base model's mean ``similarity`` to them, each measure ``base`` training,
        ``fine_tuned`` and ``final``, and the best ``documents`` before and
        after.

        Raises:
            RunFolderError: as all readers here, if the file is missing, damaged or not such a
                table.
        """
        return read_table(self.path / PER_QUERY_FILE, {"query_id": TEXT})

    def pairs(self) -> pa.Table:
        """A row per training pair.

        Its columns are ``query_id``, ``doc_id``, ``grade``, ``times_drawn``, ``kept``
        (not pruned before training), and the untrained ``similarity`` and ``cbs`` where the method
        needed them. With ``pair_weights=scores``, ``start_score`` stood in place of the similarity.
        ``first_rank`` is the share of the batch's other documents that ranked above the pair's when
        it was first visited, at ``first_step``; null if it never was. ``probability_wrong``
        is made of it.
        """
        return read_table(self.path / PAIRS_FILE, {"query_id": TEXT, "times_drawn": WHOLE})

    def trace(self) -> pa.Table:
        """A row per step: loss, learning rate, the method's schedule, seconds."""
        return read_table(self.path / TRACE_FILE, {"step": WHOLE})

    def draws(self) -> pa.Table:
        """A row per pair that a step drew: ``step`` from 1, and ``pair``, a row of
        ``pairs.parquet``.
        """
        return read_table(self.path / DRAWS_FILE, {"step": WHOLE, "pair": WHOLE})

    def review(self) -> dict[str, Any]:
        """What :func:`opera.review` shows: labels and documents of ``train`` and ``test``, and
        test queries that ``changed``.

        Raises:
            RunFolderError: if the run is not finished, or the file is no such record.
        """
        if not self.finished:
            raise RunFolderError(f"{self.path}: {UNFINISHED}")
        return read_model(self.path / REVIEW_ITEMS_FILE, ReviewRecord).model_dump()


class RunWriter:
    """Writes a run folder; each file is written in full or not at all.

    Args:
        path: the folder.
        writes: false in all processes but the main one; they write nothing.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes

    def nested(self, name: str) -> RunWriter:
        """A writer of a folder inside this one, made if it is missing."""
        if self.writes:
            with writing(self.path):
                (self.path / name).mkdir(exist_ok=True)
        return RunWriter(self.path / name, self.writes)

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        if self.writes:
            text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
            replace_file(self.path / name, partial(Path.write_text, data=text, encoding="utf-8"))

    def write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        """Write a Parquet file."""
        if self.writes:
            write_parquet(self.path / name, pa.table(dict(columns)))

    def write_csv(self, name: str, table: pa.Table) -> None:
        """Write a CSV file."""
        if self.writes:
            replace_file(self.path / name, partial(csv.write_csv, table))

    def write_record(self, record: RunRecord) -> None:
        """Write ``run.json``."""
        self.write_json(RUN_FILE, record.model_dump())

    def write_skipped(self, tables: Sequence[pa.Table | None]) -> None:
        """Write ``skipped_rows.csv``: the rows of tables of each data set that were left out."""
        if skipped := [table for table in tables if table is not None]:
            rows = pa.concat_tables(skipped)
            self.write_csv(SKIPPED_FILE, rows)
            path = self.path / SKIPPED_FILE
            log.info("%s: lists %s rows that were left out", path, f"{len(rows):,}")

    def write_trace(self, rows: Sequence[Mapping[str, float | None]]) -> None:
        """Write ``trace.parquet``: ``step`` as int64, every other value as float64."""
        if self.writes:
            kinds = {name: pa.float64() for name in rows[0]} if rows else {}
            schema = pa.schema({**kinds, "step": pa.int64()})
            table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
            write_parquet(self.path / TRACE_FILE, table)

    def write_draws(self, pair_ids: NDArray[np.int32], per_step: int) -> None:
        """Write ``draws.parquet``: pair ids ``[steps · per_step]`` in the order of the steps."""
        if self.writes:
            steps = np.arange(len(pair_ids), dtype=np.int32) // per_step + 1
            table = pa.table({"step": steps.astype(np.int32), "pair": pair_ids})
            write_parquet(self.path / DRAWS_FILE, table)

    def adopt(self, name: str) -> None:
        """Copy trace and draws of a folder inside this one: they are the run's."""
        for file in (TRACE_FILE, DRAWS_FILE):
            source = self.path / name / file
            if self.writes and source.is_file():
                replace_file(self.path / file, partial(shutil.copyfile, source))

    def write_model(self, save: Callable[[Path], None], name: str = MODEL_FOLDER) -> None:
        """Write the model folder, or another; ``save`` fills a temporary one first."""
        if self.writes:
            replace_folder(self.path / name, save)

    @property
    def model_path(self) -> Path:
        """The trained model."""
        return self.path / MODEL_FOLDER

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoints."""
        return self.path / CHECKPOINTS_FOLDER


def run_in(path: Path) -> Run | None:
    """Return the run in a folder; ``None`` without a ``run.json``, or with one not OPERA's.

    RunFolderError is raised if there is one that cannot be read.
    """
    if not os.path.lexists(path / RUN_FILE):
        return None
    ours = {"status", "identity", "settings"} <= read_object(path / RUN_FILE).keys()
    return Run(path) if ours else None


def is_report(path: Path) -> bool:
    """Whether there is a file, and a report that OPERA wrote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return REPORT_MARK in file.read(MARK_WITHIN)


def holds_run(path: Path) -> bool:
    """Whether a folder holds a ``run.json`` that OPERA wrote and that can be read."""
    try:
        return run_in(path) is not None
    except RunFolderError:
        return False


def checkpoint_folders(path: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder by ascending step; nothing else that lies there."""
    folders = {}
    for folder in path.glob("checkpoint-*"):
        if match := re.fullmatch(r"checkpoint-(0|[1-9][0-9]*)", folder.name):
            folders[int(match[1])] = folder
    return dict(sorted(folders.items()))
