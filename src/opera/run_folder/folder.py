"""The run folder: the only module that knows its file names.

    RUN/
      run.json            settings, versions, seed, fingerprints, seconds of each phase
      run.log             the run's messages, with more details than the screen shows
      measures.json       {"base": {...}, "fine_tuned": {...}, "final": {...}} on the test split,
                          and "bm25" and "hybrid" with keyword search
      per_query.parquet   a row per test query
      dev_queries.parquet  a row per dev query
      pairs.parquet       a row per training pair: how often it was sampled
      suspicious_pairs.csv  the training pairs that look wrong, the worst first
      review.json         the items of opera review
      review.html, test_review.html  the pages of opera review
      show.html           the page of opera show
      judge.json          the opinions of opera review --judge
      trace.parquet       a row per step
      draws.parquet       the pairs that each step sampled
      skipped_rows.csv    rows of tables that were left out: file, line, reason, text
      model/              loads with SentenceTransformer(path)
      bm25/DATA_SET/      the words of each data set, an index of bm25s
      checkpoints/        for --resume
      trial/              if a run trained twice: the first training, which chose λ

Every file is written under a temporary name and then renamed. So a killed process leaves the old
file or the new file.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from opera.core.arguments import RUN_FILE, user_path
from opera.core.errors import RunFolderError
from opera.core.files import replace_file, replace_folder, write_parquet, writing
from opera.core.terminal import command_line, counted, log
from opera.data.delimited_tables import with_apostrophes
from opera.run_folder.reading import read_model, read_object, read_table
from opera.run_folder.record import (
    JudgeRecord,
    JudgeRecords,
    RunMeasures,
    RunRecord,
    TrainingRecord,
)
from opera.run_folder.summary import RunSummary, headlines, run_html

MEASURES_FILE = "measures.json"
PER_QUERY_FILE = "per_query.parquet"
DEV_QUERIES_FILE = "dev_queries.parquet"
PAIRS_FILE = "pairs.parquet"
SUSPICIOUS_FILE = "suspicious_pairs.csv"
LOG_FILE = "run.log"
REVIEW_ITEMS_FILE = "review.json"
REVIEW_FILE, TEST_REVIEW_FILE, SHOW_FILE = "review.html", "test_review.html", "show.html"
JUDGE_FILE = "judge.json"
TRACE_FILE = "trace.parquet"
DRAWS_FILE = "draws.parquet"
SKIPPED_FILE = "skipped_rows.csv"
MODEL_FOLDER = "model"
KEYWORDS_FOLDER, KEYWORDS_FILES = "bm25", ("*.npy", "*.json")
CARD_FILE, RECIPE_FILE = "README.md", "recipe.yaml"
ADAPTER_FILE = "adapter.npz"
ORIGIN_FILE = "opera_run.npz"
RERANKER_FILE = "reranker.json"
"""The record of a trained reranker (:mod:`opera.run_folder.reranker_run`)."""
CHECKPOINTS_FOLDER = "checkpoints"
TRIAL_FOLDER = "trial"
SAMPLER_FILE = "sampler.npz"
COMPLETE_FILE = "complete"
REPORT_FILE, REPORT = "report.html", "OPERA report"
"""The page of ``opera report``, and the generator that it names."""
WARM_UP = 5
"""Steps that timings leave out: the first steps load data and compile kernels."""
UNFINISHED = "this run is not finished; continue it with --resume"
RUN_NAMES = (
    RUN_FILE,
    LOG_FILE,
    MEASURES_FILE,
    PER_QUERY_FILE,
    DEV_QUERIES_FILE,
    PAIRS_FILE,
    SUSPICIOUS_FILE,
    REVIEW_ITEMS_FILE,
    REVIEW_FILE,
    TEST_REVIEW_FILE,
    SHOW_FILE,
    JUDGE_FILE,
    TRACE_FILE,
    DRAWS_FILE,
    SKIPPED_FILE,
    MODEL_FOLDER,
    KEYWORDS_FOLDER,
    CHECKPOINTS_FOLDER,
    TRIAL_FOLDER,
)
"""The names that OPERA writes to a run folder, and that ``--overwrite`` removes."""
MODEL_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "*modules.json", "*config*.json"),
    *("*tokenizer.json", "*_map.json", "*tokens.json", "*vocab*", "*merges.txt", "*.model"),
    *("*.jinja", f"*{CARD_FILE}", RECIPE_FILE, ORIGIN_FILE, ADAPTER_FILE, "adapter.py"),
    *("*.onnx", "*.onnx.data", "*.onnx_data", "*export.json"),
)
"""Files in a model's folder, which ``--overwrite`` replaces and ``opera push`` uploads."""


@dataclass(frozen=True)
class Run:
    """Read access to a run folder. Does not import torch.

    Attributes:
        path: the folder.

    Examples:
        >>> run = opera.Run.open("my-run")
        >>> run.finished, run.model_path.name
        (True, 'model')
    """

    path: Path

    def __repr__(self) -> str:
        if not self.finished:
            return f"Run({str(self.path)!r}, {self.record.status})"
        return (
            f"Run({str(self.path)!r}, {self.settings['method']}, {self.steps} steps: "
            f"{self.headlines[0]})"
        )

    def _repr_html_(self) -> str | None:
        return run_html(self.summary) if self.finished else None

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run.

        Raises:
            RunFolderError: if the folder holds no run, or its ``run.json`` cannot be read.
        """
        folder = user_path(path, "run")
        run = run_in(folder)
        if run is None:
            check_no_reranker(folder)
            raise RunFolderError(f"{path}: not a run folder: it has no {RUN_FILE} of OPERA")
        return run

    @cached_property
    def record(self) -> RunRecord:
        """The contents of ``run.json``.

        Raises:
            RunFolderError: if another version of OPERA wrote it.
        """
        return RunRecord.read(self.path / RUN_FILE)

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self.record.status == "finished"

    def check_finished(self) -> None:
        """Reject a run that is not finished.

        Raises:
            RunFolderError: with advice to continue it.
        """
        if not self.finished:
            raise RunFolderError(f"{self.path}: {UNFINISHED}")

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name."""
        return dict(self.record.settings)

    @cached_property
    def measures(self) -> dict[str, dict[str, float]]:
        """``{"base": {measure: mean}, "fine_tuned": {...}, "final": {...}}`` on the test split.

        With keyword search, ``bm25`` and ``hybrid`` too.

        Raises:
            RunFolderError: if ``measures.json`` is missing or damaged.
        """
        return read_model(self.path / MEASURES_FILE, RunMeasures).model_dump(exclude_none=True)

    @cached_property
    def summary(self) -> RunSummary:
        """The facts about the finished run."""
        return RunSummary.of(self.path, self.record, self.measures, self.per_query())

    @property
    def headlines(self) -> list[str]:
        """Sentences: was the run worth it, what is its final model, what adds keyword search?"""
        return headlines(self.summary)

    @property
    def training(self) -> TrainingRecord:
        """The record of the training.

        Raises:
            RunFolderError: if the run is not finished.
        """
        training = self.record.training
        if training is None:
            raise RunFolderError(f"{self.path}: {UNFINISHED}")
        return training

    @property
    def steps(self) -> int:
        """The number of optimizer steps of the finished run."""
        return self.training.steps

    @property
    def model_path(self) -> Path:
        """The final model, a plain sentence-transformers folder."""
        return self.path / MODEL_FOLDER

    def per_query(self) -> pa.Table:
        """Return a row per test query.

        The columns are ``query_id``, the ids of the ``relevant`` documents and their ``grades``,
        and the base model's mean ``similarity`` to them. Each measure has a column for ``base``,
        ``fine_tuned`` and ``final``, and maybe for ``bm25`` and ``hybrid``. ``base documents``,
        ``final documents`` and maybe ``bm25 documents`` are the ids of the ten best documents.

        Raises:
            RunFolderError: if the file is missing or damaged, as in all readers.
        """
        return read_table(self.path / PER_QUERY_FILE)

    def pairs(self) -> pa.Table:
        """Return a row per training pair.

        The columns are ``query_id``, ``doc_id``, ``grade``, ``times_drawn`` and ``kept`` (not
        pruned before training). If the method needs them, there are the base model's ``similarity``
        and ``cbs``. At ``first_step`` the pair is sampled for the first time. ``first_rank`` is the
        fraction of the batch's other documents that then rank above its document.
        ``probability_wrong`` is estimated from it. Both are null if the pair is never sampled.
        """
        return read_table(self.path / PAIRS_FILE)

    def trace(self) -> pa.Table:
        """Return a row per step: loss, learning rate, the method's schedule, seconds."""
        return read_table(self.path / TRACE_FILE)

    def step_seconds(self) -> NDArray[np.float64]:
        """Return the seconds of each step, without the first :data:`WARM_UP` steps."""
        seconds: NDArray[np.float64] = self.trace()["seconds"].to_numpy()
        return seconds[WARM_UP:] if len(seconds) >= 2 * WARM_UP else seconds

    def draws(self) -> pa.Table:
        """Return a row per sampled pair: ``step`` from 1, and ``pair``, a row of
        ``pairs.parquet``.
        """
        return read_table(self.path / DRAWS_FILE)

    def review(self) -> dict[str, Any]:
        """Return the items of :func:`opera.review` by key: ``train`` and ``test`` (labels and
        documents), ``changed`` (test queries).

        Raises:
            RunFolderError: if the run is not finished, or the file is damaged.
        """
        self.check_finished()
        return read_object(self.path / REVIEW_ITEMS_FILE)

    def judge(self, split: str) -> JudgeRecord | None:
        """Return the opinions of the last judge about the labels of a split, if there are any.

        Raises:
            RunFolderError: if the file is damaged.
        """
        path = self.path / JUDGE_FILE
        records = read_model(path, JudgeRecords) if os.path.lexists(path) else JudgeRecords()
        return records.train if split == "train" else records.test


class RunWriter:
    """Writes a run folder. Every file is written completely or not at all.

    Args:
        path: the folder.
        writes: whether this is the main process; other processes write nothing.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes

    def nested(self, name: str) -> RunWriter:
        """Return the writer of a folder in this folder, which is made if it is missing."""
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
        self.write_tables(name, [pa.table(dict(columns))])

    def write_tables(self, name: str, tables: Iterable[pa.Table]) -> None:
        """Write a Parquet file from tables with the same columns, one after the other."""
        if self.writes:
            write_parquet(self.path / name, tables)

    def write_csv(self, name: str, table: pa.Table) -> None:
        """Write a CSV file."""
        if self.writes:
            replace_file(self.path / name, partial(csv.write_csv, with_apostrophes(table)))

    def write_skipped(self, tables: Sequence[pa.Table | None]) -> None:
        """Write ``skipped_rows.csv``: the skipped rows of all data sets."""
        if skipped := [table for table in tables if table is not None]:
            rows = pa.concat_tables(skipped)
            self.write_csv(SKIPPED_FILE, rows)
            skipped_rows = counted(len(rows), "row")
            log.info("%s: lists %s that OPERA skipped", self.path / SKIPPED_FILE, skipped_rows)

    def write_trace(self, rows: Sequence[Mapping[str, float | None]]) -> None:
        """Write ``trace.parquet``: ``step`` as int64, every other value as float64."""
        if self.writes:
            types = {name: pa.float64() for name in rows[0]} if rows else {}
            schema = pa.schema({**types, "step": pa.int64()})
            table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
            write_parquet(self.path / TRACE_FILE, [table])

    def write_draws(self, pair_ids: NDArray[np.int32], per_step: int) -> None:
        """Write ``draws.parquet``: pair ids ``[steps · per_step]`` in the order of the steps."""
        steps = np.arange(len(pair_ids), dtype=np.int32) // per_step + 1
        self.write_table(DRAWS_FILE, {"step": steps.astype(np.int32), "pair": pair_ids})

    def adopt(self, name: str) -> None:
        """Copy trace and draws from a folder in this folder."""
        for file in (TRACE_FILE, DRAWS_FILE):
            source = self.path / name / file
            if self.writes and source.is_file():
                replace_file(self.path / file, partial(shutil.copyfile, source))

    def write_model(self, save: Callable[[Path], None], name: str = MODEL_FOLDER) -> None:
        """Write the model folder, or another folder; ``save`` fills a temporary folder first."""
        if self.writes:
            replace_folder(self.path / name, save)

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoints."""
        return self.path / CHECKPOINTS_FOLDER


def run_in(path: Path) -> Run | None:
    """Return the run in a folder; ``None`` if it has no ``run.json`` of OPERA.

    Raises:
        RunFolderError: if the ``run.json`` cannot be read.
    """
    if not os.path.lexists(path / RUN_FILE):
        return None
    is_ours = {"status", "identity", "settings"} <= read_object(path / RUN_FILE).keys()
    return Run(path) if is_ours else None


def check_no_reranker(path: Path) -> None:
    """Reject the folder of a trained reranker.

    Raises:
        RunFolderError: with the command that measures it.
    """
    if (path / RERANKER_FILE).is_file():
        measure = command_line("evaluate", "DATA", "--reranker", path)
        raise RunFolderError(f"{path}: holds a reranker, not a run; {measure} measures it")


def holds_run(path: Path) -> bool:
    """Whether a folder has a readable ``run.json`` of OPERA."""
    try:
        return run_in(path) is not None
    except RunFolderError:
        return False


def checkpoint_folders(path: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder by ascending step."""
    folders = {
        folder.name.removeprefix("checkpoint-"): folder for folder in path.glob("checkpoint-*")
    }
    return {int(step): folders[step] for step in sorted(filter(str.isdecimal, folders), key=int)}
