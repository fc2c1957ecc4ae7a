"""The run folder: the only module that knows its file names.

    RUN/
      run.json            settings, versions, seed, fingerprints, seconds of each phase
      measures.json       {"before": {...}, "fine_tuned": {...}, "after": {...}} on the test split
      per_query.parquet   a row per test query
      pairs.parquet       a row per training pair: how often it was drawn, whether it was injected as noise
      trace.parquet       a row per step
      sampling.npz        the sampling probabilities at about 50 steps
      model/              loads with SentenceTransformer(path)
      checkpoints/        what --resume continues from
      fine_tuned/         with keep_fine_tuned: the model as trained, before it is mixed with the untrained one
      trial/              where two trainings were run: trace, sampling and checkpoints of the one that chose the share

Every file is written under a temporary name and then renamed, so a killed process leaves the old file or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import RunFolderError
from opera.core.files import replace_file
from opera.core.locks import LOCK_FILE, refuse_in_use
from opera.runs.record import RunRecord, TrainingRecord
from opera.runs.sampling import SamplingRecord

RUN_FILE = "run.json"
MEASURES_FILE = "measures.json"
PER_QUERY_FILE = "per_query.parquet"
PAIRS_FILE = "pairs.parquet"
TRACE_FILE = "trace.parquet"
SAMPLING_FILE = "sampling.npz"
MODEL_FOLDER = "model"
ADAPTER_FILE = "adapter.npz"
CHECKPOINTS_FOLDER = "checkpoints"
TRIAL_FOLDER = "trial"
FINE_TUNED_FOLDER = "fine_tuned"
SAMPLER_FILE = "sampler.npz"
WHOLE_FILE = "whole.json"
OURS = (
    RUN_FILE,
    MEASURES_FILE,
    PER_QUERY_FILE,
    PAIRS_FILE,
    TRACE_FILE,
    SAMPLING_FILE,
    MODEL_FOLDER,
    CHECKPOINTS_FOLDER,
    TRIAL_FOLDER,
    FINE_TUNED_FOLDER,
)


@dataclass(frozen=True)
class Run:
    """A run folder, for reading; nothing here needs torch.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run.

        Raises:
            RunFolderError: if the folder holds no run.
        """
        folder = Path(path)
        if not holds_run(folder):
            raise RunFolderError(f"{path}: not a run folder: it holds no {RUN_FILE} that opera wrote")
        return cls(folder)

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
        """``{"before": {measure: mean}, "fine_tuned": {...}, "after": {...}}`` on the test split.

        ``fine_tuned`` is the model as trained, ``after`` the model handed over. Older runs hand over the first.
        """
        found = dict(json.loads((self.path / MEASURES_FILE).read_text(encoding="utf-8")))
        if "after" in found:
            found.setdefault("fine_tuned", found["after"])
        return found

    @property
    def training(self) -> TrainingRecord:
        """How training went.

        Raises:
            RunFolderError: if the run is not finished.
        """
        if self.record.training is None:
            raise RunFolderError(f"{self.path}: this run is not finished; continue it with --resume")
        return self.record.training

    @property
    def steps(self) -> int:
        """How many optimizer steps the finished run took."""
        return self.training.steps

    @property
    def model_path(self) -> Path:
        """The trained model, a plain sentence-transformers folder."""
        return self.path / MODEL_FOLDER

    def per_query(self) -> pa.Table:
        """A row per test query: ``query_id``, the ids of its ``relevant`` documents, the pretrained model's mean
        ``similarity`` to them, each measure ``before`` training, ``fine_tuned`` (but in older runs) and ``after``, and
        the best ``documents`` before and after."""
        return pq.read_table(self.path / PER_QUERY_FILE)

    def pairs(self) -> pa.Table:
        """A row per training pair: ``query_id``, ``doc_id``, ``grade``, ``injected``, ``times_drawn``, ``kept`` (not
        pruned before training), and the pretrained ``similarity`` and ``cbs`` where the method needed them."""
        return pq.read_table(self.path / PAIRS_FILE)

    def trace(self) -> pa.Table:
        """A row per step: loss, learning rate, the method's schedule, seconds."""
        return pq.read_table(self.path / TRACE_FILE)

    def sampling(self) -> SamplingRecord | None:
        """The recorded sampling probabilities, or ``None`` for a run with ``snapshots=0``."""
        path = self.path / SAMPLING_FILE
        return SamplingRecord.read(path) if path.is_file() else None


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
            (self.path / name).mkdir(exist_ok=True)
        return RunWriter(self.path / name, self.writes)

    def write_record(self, record: RunRecord) -> None:
        """Write ``run.json``."""
        self._write_text(RUN_FILE, record.to_json())

    def write_measures(self, measures: Mapping[str, Mapping[str, float]]) -> None:
        """Write ``measures.json``."""
        self._write_text(MEASURES_FILE, json.dumps(measures, indent=2, ensure_ascii=False) + "\n")

    def write_per_query(self, columns: Mapping[str, Any]) -> None:
        """Write ``per_query.parquet``."""
        self._write_table(PER_QUERY_FILE, columns)

    def write_pairs(self, columns: Mapping[str, Any]) -> None:
        """Write ``pairs.parquet``."""
        self._write_table(PAIRS_FILE, columns)

    def write_trace(self, rows: Sequence[Mapping[str, float | None]]) -> None:
        """Write ``trace.parquet``: ``step`` as int64, every other value as float64."""
        if self.writes:
            names = list(rows[0]) if rows else ["step"]
            schema = pa.schema([(name, pa.int64() if name == "step" else pa.float64()) for name in names])
            table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
            replace_file(self.path / TRACE_FILE, lambda temporary: pq.write_table(table, temporary))

    def write_sampling(self, record: SamplingRecord) -> None:
        """Write ``sampling.npz``."""
        if self.writes:
            replace_file(self.path / SAMPLING_FILE, record.write)

    def adopt(self, name: str) -> None:
        """Copy the trace and the sampling probabilities of a folder inside this one: its training is the run's."""
        if self.writes:
            for file in (TRACE_FILE, SAMPLING_FILE):
                source = self.path / name / file
                if source.is_file():
                    replace_file(self.path / file, partial(shutil.copyfile, source))

    def write_model(self, save: Callable[[Path], None], name: str = MODEL_FOLDER) -> None:
        """Write the model folder, or another; ``save`` writes it to a temporary path, which then takes its place."""
        if not self.writes:
            return
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self.path))
        temporary.chmod(0o755)
        save(temporary)
        home = self.path / name
        old = None
        if home.exists():
            old = Path(tempfile.mkdtemp(prefix=".old-", dir=self.path))
            home.rename(old / "model")
        temporary.rename(home)
        if old is not None:
            shutil.rmtree(old)

    @property
    def model_path(self) -> Path:
        """The trained model."""
        return self.path / MODEL_FOLDER

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoints."""
        return self.path / CHECKPOINTS_FOLDER

    def _write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        if self.writes:
            table = pa.table(dict(columns))
            replace_file(self.path / name, lambda temporary: pq.write_table(table, temporary))

    def _write_text(self, name: str, text: str) -> None:
        if self.writes:
            replace_file(self.path / name, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def holds_run(path: Path) -> bool:
    """Whether a folder holds a ``run.json`` that OPERA wrote."""
    try:
        values = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and {"status", "identity", "settings"} <= values.keys()


def run_started_after(path: Path, moment: float) -> bool:
    """Whether a folder's ``run.json`` was written at or after ``moment``, in seconds since 1970."""
    return holds_run(path) and (path / RUN_FILE).stat().st_mtime >= moment


def last_complete_checkpoint(path: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or ``None``."""
    seals = (path / CHECKPOINTS_FOLDER).glob(f"checkpoint-*/{WHOLE_FILE}")
    steps = [seal.parent.name.rsplit("-", 1)[-1] for seal in seals]
    return max((int(step) for step in steps if step.isdigit()), default=None)


def check_out_folder(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that another process trains into, or that is not free. Writes nothing.

    Raises:
        RunFolderError: as :func:`check_free`, and where another process holds the folder.
    """
    refuse_in_use(path)
    check_free(path, resume, overwrite)


def check_free(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that is not free. Writes nothing.

    Raises:
        RunFolderError: if it holds a run and neither ``resume`` nor ``overwrite`` is given, if it holds anything else,
            or if there is nothing to resume.
    """
    if resume and overwrite:
        raise RunFolderError("--resume continues a run and --overwrite replaces it: pass one of the two")
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"--out {path}: is a file; pass a folder")
    ours = holds_run(path)
    if resume and not ours:
        raise RunFolderError(f"--out {path}: holds no run to resume; omit --resume to start one")
    if ours and not resume and not overwrite:
        other = "another" if _is_finished(path) else "an unfinished"
        raise RunFolderError(
            f"--out {path}: holds {other} run; pass --resume to continue it, --overwrite to replace it, "
            "or another folder"
        )
    if not ours and path.is_dir() and set(path.iterdir()) - {path / LOCK_FILE, *_leftovers(path)}:
        raise RunFolderError(f"--out {path}: is not empty and holds no run; pass an empty or a new folder")
    check_writable(path)


def _is_finished(path: Path) -> bool:
    """Whether the run in a folder is finished; true for one that this version of OPERA cannot read."""
    try:
        return Run.open(path).finished
    except RunFolderError:
        return True


def check_writable(path: Path) -> None:
    """Refuse an output folder that cannot be created or written to.

    Raises:
        RunFolderError: naming the obstacle.
    """
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise RunFolderError(f"--out {path}: {existing} is not a folder that can be written to")


def clear_run(path: Path) -> None:
    """Remove a run's own files from its folder, and nothing else in it."""
    clear_leftovers(path)
    for name in reversed(OURS):  # run.json last: until then the folder is known as a run
        _remove(path / name)


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run: they are larger than its model, and nothing resumes from them."""
    for folder in (path, path / TRIAL_FOLDER):
        _remove(folder / CHECKPOINTS_FOLDER)


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files that a killed process left."""
    for place in _leftovers(path):
        _remove(place)


def _leftovers(path: Path) -> list[Path]:
    folders = (path, path / TRIAL_FOLDER)
    return [place for folder in folders for name in (*OURS, "old") for place in folder.glob(f".{name}-*")]


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def refuse_other_settings(path: Path, identity: Mapping[str, Any]) -> None:
    """Refuse to resume a run with a different model, data or settings.

    Raises:
        RunFolderError: naming each difference.
    """
    recorded = Run.open(path).record.identity
    differences = [
        f"{key}: the run has {recorded.get(key)!r}, this call {identity.get(key)!r}"
        for key in sorted({*recorded, *identity})
        if recorded.get(key) != identity.get(key)
    ]
    if differences:
        advice = "use the same settings, or --overwrite to start again"
        raise RunFolderError(f"--resume {path}: was started differently; {advice}:\n" + "\n".join(differences))
