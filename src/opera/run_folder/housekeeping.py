"""Check that an output folder is free for a run, and remove only OPERA's files from it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from opera.core.errors import RunFolderError
from opera.core.files import (
    check_folder,
    check_reads_stay,
    foreign_files,
    leftovers,
    remove,
)
from opera.core.locks import LOCK_FILE, refuse_in_use
from opera.core.paths import RUN_FILE
from opera.core.terminal import place
from opera.run_folder.folder import (
    CHECKPOINTS_FOLDER,
    MODEL_FILES,
    MODEL_FOLDER,
    REPORT_FILE,
    RUN_NAMES,
    TRIAL_FOLDER,
    holds_run,
    is_report,
    run_in,
)


def run_started_after(path: Path, moment: float) -> bool:
    """Whether a folder's ``run.json`` is at least as new as ``moment``, in seconds since 1970."""
    return holds_run(path) and (path / RUN_FILE).stat().st_mtime >= moment


def check_out_folder(path: Path, resume: bool, overwrite: bool) -> None:
    """Reject an output folder that is not free, or that another process trains into. This writes
    nothing.

    Raises:
        RunFolderError: as :func:`check_free`, and if another process holds the folder.
    """
    refuse_in_use(path)
    check_free(path, resume, overwrite)


def check_free(path: Path, resume: bool, overwrite: bool) -> None:
    """Reject an output folder that is not free. This writes nothing.

    Raises:
        RunFolderError: if the folder holds a run and neither ``resume`` nor ``overwrite`` is set,
            or if it holds other files. Also if there is nothing to resume, if a resumed run would
            write through a link, or if the user would lose files.
    """
    if resume and overwrite:
        raise RunFolderError(
            "--resume continues a run and --overwrite replaces it: pass one of the two"
        )
    check_folder(path, "--out")
    if run_in(path) is None:
        if resume:
            raise RunFolderError(f"--out {path}: holds no run to resume; omit --resume to start")
        if path.is_dir() and set(path.iterdir()) - {path / LOCK_FILE, *_leftovers(path)}:
            raise RunFolderError(
                f"--out {path}: is not empty and holds no run; pass an empty or a new folder"
            )
    elif not resume and not overwrite:
        raise RunFolderError(
            f"--out {path}: holds a run; pass --resume to continue it, --overwrite to replace it, "
            "or another folder"
        )
    for link in [file for file in _written_paths(path) if resume and file.is_symlink()]:
        raise RunFolderError(
            f"--resume {path}: {link} is a link, and OPERA writes only to the run folder; remove "
            "the link, or pass --overwrite to start again"
        )
    model = path / MODEL_FOLDER
    for file in foreign_files(model, MODEL_FILES) if overwrite and not model.is_symlink() else ():
        raise RunFolderError(
            f"--out {path}: --overwrite would delete {place(file)}, which OPERA did not write; "
            "move it away, or pass another folder"
        )


def _written_paths(path: Path) -> list[Path]:
    """Return every path that OPERA writes."""
    return [folder / name for folder in (path / TRIAL_FOLDER, path) for name in RUN_NAMES]


def removed_by_overwrite(path: Path) -> list[Path]:
    """Return the paths that ``--overwrite`` removes, ``run.json`` last; other names stay."""
    report = [path / REPORT_FILE] if is_report(path / REPORT_FILE) else []
    written = [path / name for name in reversed(RUN_NAMES)]
    return [*report, *(place for place in written if os.path.lexists(place))]


def check_reads_survive(path: Path, reads: Iterable[Path]) -> None:
    """Check that ``--overwrite`` removes no file of a run folder that the command reads.

    Raises:
        RunFolderError: with the file.
    """
    check_reads_stay(path, "--out", reads, removed_by_overwrite(path))


def clear_run(path: Path) -> None:
    """Remove OPERA's files from a run folder; files with other names stay."""
    clear_leftovers(path)
    for written in removed_by_overwrite(path):
        remove(written)


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run."""
    for folder in (path / CHECKPOINTS_FOLDER, path / TRIAL_FOLDER / CHECKPOINTS_FOLDER):
        remove(folder)


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files of a killed process."""
    for leftover in _leftovers(path):
        remove(leftover)


def _leftovers(path: Path) -> list[Path]:
    return [leftover for written in _written_paths(path) for leftover in leftovers(written)]
