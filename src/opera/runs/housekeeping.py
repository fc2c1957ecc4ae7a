"""Which output folder is free for a run, and what is removed from one: OPERA's own files, and nothing of others."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError
from opera.core.files import check_folder, remove, unfinished_files
from opera.core.locks import LOCK_FILE, refuse_in_use
from opera.core.terminal import shortened, shown
from opera.runs.folder import (
    CHECKPOINTS_FOLDER,
    OURS,
    RUN_FILE,
    TRIAL_FOLDER,
    WHOLE_FILE,
    Run,
    checkpoint_folders,
    holds_run,
    run_in,
)


def run_started_after(path: Path, moment: float) -> bool:
    """Whether a folder's ``run.json`` was written at or after ``moment``, in seconds since 1970."""
    return holds_run(path) and (path / RUN_FILE).stat().st_mtime >= moment


def last_complete_checkpoint(path: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or ``None``."""
    found = checkpoint_folders(path / CHECKPOINTS_FOLDER)
    return max((step for step, folder in found.items() if os.path.lexists(folder / WHOLE_FILE)), default=None)


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
            if there is nothing to resume, or if a resumed run would write through a link.
    """
    if resume and overwrite:
        raise RunFolderError("--resume continues a run and --overwrite replaces it: pass one of the two")
    check_folder(path, "--out")
    ours = run_in(path) is not None
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
    if resume:
        _refuse_links(path)


def _refuse_links(path: Path) -> None:
    """Refuse to resume a run whose folders are links: what is written or deleted there would be elsewhere.

    Raises:
        RunFolderError: naming the link.
    """
    for folder in (path, path / TRIAL_FOLDER):
        for name in OURS:
            if (folder / name).is_symlink():
                raise RunFolderError(
                    f"--resume {path}: {folder / name} is a link, and OPERA writes to no other place than the run "
                    "folder; put what it leads to in its place, or pass --overwrite to start again without it"
                )


def _is_finished(path: Path) -> bool:
    """Whether the run in a folder is finished; true for one that this version of OPERA cannot read."""
    try:
        return Run.open(path).finished
    except RunFolderError:
        return True


def clear_run(path: Path) -> None:
    """Remove a run's own files from its folder, and nothing else in it."""
    clear_leftovers(path)
    for name in reversed(OURS):  # run.json last: until then the folder is known as a run
        remove(path / name)


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run: they are larger than its model, and nothing resumes from them."""
    for folder in (path, path / TRIAL_FOLDER):
        remove(folder / CHECKPOINTS_FOLDER)


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files that a killed process left."""
    for place in _leftovers(path):
        remove(place)


def _leftovers(path: Path) -> list[Path]:
    # "opera" names the file that tests whether a folder can be written to
    folders = (path, path / TRIAL_FOLDER)
    return [left for folder in folders for name in (*OURS, "old", "opera") for left in unfinished_files(folder / name)]


def refuse_other_settings(path: Path, identity: Mapping[str, Any], without_effect: Collection[str] = ()) -> None:
    """Refuse to resume a run with a different model, data or settings.

    Args:
        path: the run folder.
        identity: what must be equal.
        without_effect: settings that change no result, which runs of earlier versions hold among theirs.

    Raises:
        RunFolderError: naming each difference.
    """
    recorded = Run.open(path).record.identity
    differences = [
        f"{shortened(shown(key)[1:-1])}: the run has {shown(recorded.get(key))}, this call {shown(identity.get(key))}"
        for key in sorted({*recorded, *identity})
        if recorded.get(key) != identity.get(key) and key not in without_effect
    ]
    if differences:
        advice = "use the same settings, or --overwrite to start again"
        raise RunFolderError(f"--resume {path}: was started differently; {advice}:", *differences)
