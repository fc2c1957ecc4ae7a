"""Which output folder is free for a run, and what is removed from one: OPERA's files alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError
from opera.core.files import (
    check_folder,
    check_reads_stay,
    leftovers,
    remove,
    remove_if_empty,
    strangers,
)
from opera.core.locks import LOCK_FILE, refuse_in_use
from opera.core.terminal import place, shortened, shown
from opera.runs.folder import (
    CHECKPOINTS_FOLDER,
    COMPLETE_FILE,
    MODEL_FILES,
    MODEL_FOLDER,
    REPORT_FILE,
    RUN_FILE,
    RUN_NAMES,
    TRIAL_FOLDER,
    Run,
    checkpoint_folders,
    holds_run,
    is_report,
    run_in,
)


def run_started_after(path: Path, moment: float) -> bool:
    """Whether a folder's ``run.json`` was written at or after ``moment``, in seconds since 1970."""
    return holds_run(path) and (path / RUN_FILE).stat().st_mtime >= moment


def last_complete_checkpoint(path: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or ``None``."""
    folders = checkpoint_folders(path / CHECKPOINTS_FOLDER)
    complete = [step for step, folder in folders.items() if (folder / COMPLETE_FILE).is_file()]
    return max(complete, default=None)


def check_out_folder(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that another process trains into, or that is not free. Writes
    nothing.

    Raises:
        RunFolderError: as :func:`check_free`, and if another process holds the folder.
    """
    refuse_in_use(path)
    check_free(path, resume, overwrite)


def check_free(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that is not free. Writes nothing.

    Raises:
        RunFolderError: if it holds a run and neither ``resume`` nor ``overwrite`` is given, if it
            holds anything else, if there is nothing to resume, if a resumed run would write
            through a link, or if files of the user would be lost.
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
    for link in [name for name in _places(path) if resume and name.is_symlink()]:
        raise RunFolderError(
            f"--resume {path}: {link} is a link, and OPERA writes only to the run folder; remove "
            "the link, or pass --overwrite to start again"
        )
    model = path / MODEL_FOLDER
    for file in strangers(model, MODEL_FILES) if overwrite and not model.is_symlink() else ():
        raise RunFolderError(
            f"--out {path}: --overwrite would delete {place(file)}, which OPERA did not write; "
            "move it away, or pass another folder"
        )


def _places(path: Path) -> list[Path]:
    """Every place that OPERA writes; ``run.json`` last: until then the folder is known as a run."""
    return [folder / name for folder in (path / TRIAL_FOLDER, path) for name in reversed(RUN_NAMES)]


def removed_by_overwrite(path: Path) -> list[Path]:
    """Return what ``--overwrite`` removes; files with other names stay."""
    report = path / REPORT_FILE
    removed = [report] if is_report(report) else []
    for written in _places(path):
        if written.is_symlink() or written.name not in (CHECKPOINTS_FOLDER, TRIAL_FOLDER):
            removed += [written] if os.path.lexists(written) else []
        elif written.name == CHECKPOINTS_FOLDER:
            removed += checkpoint_folders(written).values()
    return removed


def check_reads_survive(path: Path, reads: Iterable[Path]) -> None:
    """Check that ``--overwrite`` removes nothing from a run folder that the command reads.

    Raises:
        RunFolderError: naming it.
    """
    check_reads_stay(path, "--out", reads, removed_by_overwrite(path))


def clear_run(path: Path) -> None:
    """Remove what OPERA wrote from a run folder; files with other names stay."""
    clear_leftovers(path)
    for written in removed_by_overwrite(path):
        remove(written)
    for folder in _checkpoint_homes(path):
        remove_if_empty(folder)
    remove_if_empty(path / TRIAL_FOLDER)


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run, which nothing resumes from."""
    for home in _checkpoint_homes(path):
        for folder in checkpoint_folders(home).values():
            remove(folder)
        remove_if_empty(home)


def _checkpoint_homes(path: Path) -> list[Path]:
    return [path / CHECKPOINTS_FOLDER, path / TRIAL_FOLDER / CHECKPOINTS_FOLDER]


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files that a killed process left."""
    for leftover in _leftovers(path):
        remove(leftover)


def _leftovers(path: Path) -> list[Path]:
    return [leftover for written in _places(path) for leftover in leftovers(written)]


def refuse_other_settings(path: Path, identity: Mapping[str, Any]) -> None:
    """Refuse to resume a run with a different model, data or settings.

    Args:
        path: the run folder.
        identity: what must be equal.

    Raises:
        RunFolderError: naming each difference.
    """
    recorded = Run.open(path).record.identity
    differences = [
        f"{shortened(key)}: the run has {shown(recorded.get(key))}, this call "
        f"{shown(identity.get(key))}"
        for key in sorted({*recorded, *identity})
        if recorded.get(key) != identity.get(key)
    ]
    if differences:
        advice = "use the same settings, or --overwrite to start again"
        raise RunFolderError(f"--resume {path}: was started differently; {advice}:", *differences)
