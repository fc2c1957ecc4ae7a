"""Which output folder is free for a run, and what is removed from one: OPERA's files alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError
from opera.core.files import (
    LIST_FILE,
    check_folder,
    check_reads_stay,
    remove,
    remove_empty,
    unfinished,
    written_files,
)
from opera.core.locks import LOCK_FILE, refuse_in_use
from opera.core.terminal import shortened, shown
from opera.runs.folder import (
    CHECKPOINTS_FOLDER,
    MODEL_FOLDER,
    OURS,
    REPORT_FILE,
    RUN_FILE,
    TRIAL_FOLDER,
    WHOLE_FILE,
    Run,
    checkpoint_folders,
    holds_run,
    is_report,
    run_in,
)

FOLDERS = (MODEL_FOLDER, CHECKPOINTS_FOLDER, TRIAL_FOLDER)


def run_started_after(path: Path, moment: float) -> bool:
    """Whether a folder's ``run.json`` was written at or after ``moment``, in seconds since 1970."""
    return holds_run(path) and (path / RUN_FILE).stat().st_mtime >= moment


def last_complete_checkpoint(path: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or ``None``."""
    found = checkpoint_folders(path / CHECKPOINTS_FOLDER)
    return max(
        (step for step, folder in found.items() if os.path.lexists(folder / WHOLE_FILE)),
        default=None,
    )


def check_out_folder(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that another process trains into, or that is not free. Writes
    nothing.

    Raises:
        RunFolderError: as :func:`check_free`, and where another process holds the folder.
    """
    refuse_in_use(path)
    check_free(path, resume, overwrite)


def check_free(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output folder that is not free. Writes nothing.

    Raises:
        RunFolderError: if it holds a run and neither ``resume`` nor ``overwrite`` is given, if it
            holds anything else, if there is nothing to resume, if a resumed run would write through
            a link or where a file is, or if nobody knows which files of a model folder OPERA wrote.
    """
    if resume and overwrite:
        raise RunFolderError(
            "--resume continues a run and --overwrite replaces it: pass one of the two"
        )
    check_folder(path, "--out")
    ours, finished = run_in(path) is not None, _is_finished(path)
    if resume and not ours:
        raise RunFolderError(f"--out {path}: holds no run to resume; omit --resume to start one")
    if ours and not resume and not overwrite:
        found = "a run; pass" if finished else "an unfinished run; pass --resume to continue it,"
        raise RunFolderError(
            f"--out {path}: holds {found} --overwrite to replace it, or another folder"
        )
    if not ours and path.is_dir() and set(path.iterdir()) - {path / LOCK_FILE, *_leftovers(path)}:
        raise RunFolderError(
            f"--out {path}: is not empty and holds no run; pass an empty or a new folder"
        )
    for place in _places(path) if resume else ():
        if place.name in FOLDERS and place.is_file():
            raise RunFolderError(
                f"--resume {path}: {place} must be a folder; remove it, or pass --overwrite to "
                "start again"
            )
        if place.is_symlink():
            raise RunFolderError(
                f"--resume {path}: {place} is a link, and OPERA writes to no other place than the "
                "run folder; put what it leads to in its place, or pass --overwrite to start again "
                "without it"
            )
    home = path / MODEL_FOLDER
    replaced = overwrite or (resume and not finished)
    filled = home.is_dir() and not home.is_symlink() and any(home.iterdir())
    if replaced and filled and not written_files(home):  # nobody knows what is the user's
        raise RunFolderError(
            f"--out {path}: {home} has no list of the files that OPERA wrote there ({LIST_FILE}); "
            "remove that folder, or pass another --out"
        )


def _places(path: Path) -> list[Path]:
    """Every place that OPERA writes; ``run.json`` last: until then the folder is known as a run."""
    return [folder / name for folder in (path / TRIAL_FOLDER, path) for name in reversed(OURS)]


def _is_finished(path: Path) -> bool:
    """Whether the run in a folder is finished; true for one that cannot be read."""
    try:
        return Run.open(path).finished
    except RunFolderError:
        return True


def removed_by_overwrite(path: Path) -> list[Path]:
    """Return what ``--overwrite`` removes: what OPERA wrote there, and links in its place."""
    report = path / REPORT_FILE
    found = [report] if is_report(report) else []
    for place in _places(path):
        if place.is_symlink() or not place.is_dir():
            found += [place] if os.path.lexists(place) else []
        elif place.name == CHECKPOINTS_FOLDER:
            found += checkpoint_folders(place).values()
        elif place.name != TRIAL_FOLDER:
            found += written_files(place)
    return found


def check_reads_survive(path: Path, reads: Iterable[Path]) -> None:
    """Check that ``--overwrite`` removes nothing from a run folder that the command reads.

    Raises:
        RunFolderError: naming it.
    """
    check_reads_stay(path, "--out", reads, removed_by_overwrite(path))


def clear_run(path: Path) -> None:
    """Remove what OPERA wrote from a run folder; what others put there stays."""
    clear_leftovers(path)
    for place in removed_by_overwrite(path):
        remove(place)
    for folder in (path / TRIAL_FOLDER, path):
        for name in (MODEL_FOLDER, CHECKPOINTS_FOLDER):
            remove_empty(folder / name)
    remove_empty(path / TRIAL_FOLDER)


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run, which nothing resumes from."""
    for home in (path / CHECKPOINTS_FOLDER, path / TRIAL_FOLDER / CHECKPOINTS_FOLDER):
        for folder in checkpoint_folders(home).values():
            remove(folder)
        remove_empty(home)


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files that a killed process left."""
    for place in _leftovers(path):
        remove(place)


def _leftovers(path: Path) -> list[Path]:
    return [place for place in map(unfinished, _places(path)) if os.path.lexists(place)]


def refuse_other_settings(
    path: Path, identity: Mapping[str, Any], without_effect: Collection[str] = ()
) -> None:
    """Refuse to resume a run with a different model, data or settings.

    Args:
        path: the run folder.
        identity: what must be equal.
        without_effect: settings that change no result, which runs of earlier versions hold among
            theirs.

    Raises:
        RunFolderError: naming each difference.
    """
    recorded = Run.open(path).record.identity
    differences = [
        f"{shortened(shown(key)[1:-1])}: the run has {shown(recorded.get(key))}, this call "
        f"{shown(identity.get(key))}"
        for key in sorted({*recorded, *identity})
        if recorded.get(key) != identity.get(key) and key not in without_effect
    ]
    if differences:
        advice = "use the same settings, or --overwrite to start again"
        raise RunFolderError(f"--resume {path}: was started differently; {advice}:", *differences)
