"""Check that an output folder is free for a run, replace its run, and remove only OPERA's files.

``--overwrite`` trains in the folder ``.RUN.new`` next to ``RUN``. At the end both exchange their
names, so ``RUN`` holds the old run or the new one, and never a part of either. ``run.log`` gets all
messages of a run, with details that the screen does not show.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from opera.core.arguments import RUN_FILE
from opera.core.cache import LOCK_FILE, sole_use
from opera.core.errors import RunFolderError, raise_first
from opera.core.files import (
    check_folder,
    clear_leftovers,
    complete_exchange,
    exchange,
    foreign_files,
    is_page,
    leftovers,
    remove,
    writing,
)
from opera.core.terminal import log, shown_path
from opera.run_folder.folder import (
    CHECKPOINTS_FOLDER,
    KEYWORDS_FILES,
    KEYWORDS_FOLDER,
    MODEL_FILES,
    MODEL_FOLDER,
    REPORT,
    REPORT_FILE,
    RUN_NAMES,
    TRIAL_FOLDER,
    holds_run,
    run_in,
)

REPLACED_FILE = ".replaced"
"""Marks a run that the next exchange replaces, or has replaced."""


def new_folder(path: Path) -> Path:
    """Return the folder in which ``--overwrite`` trains the run that will replace a run."""
    path = path.resolve()
    return path.parent / f".{path.name}.new"


def folder_to_write(path: Path, resume: bool, overwrite: bool) -> Path:
    """Return the folder to train in: ``path``, or its new folder if the run replaces another."""
    new = new_folder(path)
    replaces = holds_run(new) if resume else overwrite and run_in(path) is not None
    return new if replaces else path


def run_started_after(path: Path, moment: float) -> bool:
    """Whether the ``run.json`` of a run, or of the run that will replace it, is at least as new as
    ``moment``, in seconds since 1970.
    """
    return any(
        holds_run(folder) and (folder / RUN_FILE).stat().st_mtime >= moment
        for folder in (path, new_folder(path))
    )


def check_out_folder(path: Path, resume: bool, overwrite: bool) -> None:
    """Reject an output folder that is not free, or that another process trains into. This writes
    nothing, but completes the exchange of a killed ``--overwrite``.

    Raises:
        RunFolderError: as :func:`check_free`, and if another process holds the folder.
    """
    new = new_folder(path)
    complete_exchange(new, path.resolve())
    if (path / LOCK_FILE).is_file() or (path.is_dir() and new.is_dir()):
        with sole_use(path, "looks at it"):
            drop_replaced(path)
    check_free(path, resume, overwrite)


def check_free(path: Path, resume: bool, overwrite: bool) -> None:
    """Reject an output folder that is not free. This writes nothing.

    Raises:
        RunFolderError: if the folder holds a run and neither ``resume`` nor ``overwrite`` is set,
            or if it holds other files. Also if there is nothing to resume, if a resumed run would
            write through a link, if the folder cannot be exchanged, or if the user would lose
            files.
    """
    if resume and overwrite:
        raise RunFolderError(
            "--resume continues a run and --overwrite replaces it: pass one of the two"
        )
    check_folder(path, "--out")
    target, allowed = (
        folder_to_write(path, resume, overwrite),
        {path / LOCK_FILE, *_leftovers(path)},
    )
    holds_ours = run_in(path) is not None or target != path
    is_empty = not path.is_dir() or set(path.iterdir()) <= allowed
    raise_first(
        RunFolderError,
        (resume and not holds_ours, "holds no run to resume; omit --resume to start"),
        (
            not holds_ours and not is_empty,
            "is not empty and holds no run; pass an empty or a new folder",
        ),
        (
            holds_ours and not resume and not overwrite,
            "holds a run; pass --resume to continue it, --overwrite to replace it, or another "
            "folder",
        ),
        (
            target != path and not can_be_exchanged(path.resolve()),
            "--overwrite replaces the folder at the end, so it must not be a mount point or the "
            "current folder, and its parent folder must be writable; pass another folder",
        ),
        subject=f"--out {path}: ",
    )
    for link in [file for file in _written_paths(target) if resume and file.is_symlink()]:
        raise RunFolderError(
            f"--resume {path}: {link} is a link, and OPERA writes only to the run folder; remove "
            "the link, or pass --overwrite to start again"
        )
    for file in _foreign_files(path) if overwrite else ():
        raise RunFolderError(
            f"--out {path}: --overwrite would delete {shown_path(file)}, which OPERA did not "
            "write; move it away, or pass another folder"
        )


def can_be_exchanged(folder: Path) -> bool:
    """Whether a folder can exchange its name with another one."""
    return (
        not folder.is_mount()
        and not Path.cwd().is_relative_to(folder)
        and os.access(folder.parent, os.W_OK)
    )


def _foreign_files(path: Path) -> list[Path]:
    """Return the files of other programs in the folders that ``--overwrite`` removes."""
    folders = {path / MODEL_FOLDER: MODEL_FILES, path / KEYWORDS_FOLDER: KEYWORDS_FILES}
    return [
        file
        for folder, patterns in folders.items()
        if not folder.is_symlink()
        for file in foreign_files(folder, patterns)
    ]


def prepare_folder(path: Path, target: Path, resume: bool) -> None:
    """Make the folder to train in, and remove what killed processes left. The caller holds
    ``path``.
    """
    if not resume:
        remove(new_folder(path))
    if target != path:
        target.mkdir(exist_ok=True)
        shutil.copymode(path, target)
    for written in _written_paths(target):
        clear_leftovers(written)


def replace_run(path: Path) -> None:
    """Exchange a run with the finished one in its new folder. The caller holds ``path``.

    Raises:
        StorageError: if the folders cannot be exchanged.
    """
    new = new_folder(path)
    with writing(new.parent, final=path):
        with suppress(OSError):  # the lock also holds the folder that comes
            os.link(path / LOCK_FILE, new / LOCK_FILE)
        (path / REPLACED_FILE).touch()
        exchange(new, path.resolve())
        drop_replaced(path)


def drop_replaced(path: Path) -> None:
    """Remove a run that was replaced, or a part of one. Files with other names move to the run that
    replaced it.
    """
    old = new_folder(path)
    if (old / REPLACED_FILE).exists():
        known = {old / LOCK_FILE, old / REPLACED_FILE, *_leftovers(old), *removed_by_overwrite(old)}
        for file in set(old.iterdir()) - known:
            file.rename(path / file.name)
        remove(old / RUN_FILE)  # a part of a run must not look like one to resume
    if not holds_run(old):
        remove(old)


def _written_paths(path: Path) -> list[Path]:
    """Return every path that OPERA writes."""
    return [folder / name for folder in (path / TRIAL_FOLDER, path) for name in RUN_NAMES]


def removed_by_overwrite(path: Path) -> list[Path]:
    """Return the paths that ``--overwrite`` removes, ``run.json`` last; other names stay."""
    report = [path / REPORT_FILE] if is_page(path / REPORT_FILE, REPORT) else []
    return [*report, *filter(os.path.lexists, [path / name for name in reversed(RUN_NAMES)])]


def drop_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished run."""
    for folder in (path / CHECKPOINTS_FOLDER, path / TRIAL_FOLDER / CHECKPOINTS_FOLDER):
        remove(folder)


def _leftovers(path: Path) -> list[Path]:
    return [leftover for written in _written_paths(path) for leftover in leftovers(written)]


class _ToParents(logging.Handler):
    """Passes the records to the root logger, which would get them without the file."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().callHandlers(record)


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Add all messages of the block to a file. The screen shows the same as without it."""
    file, screen = logging.FileHandler(path, encoding="utf-8", delay=True), _ToParents()
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level, propagates = log.level, log.propagate
    screen.setLevel(log.getEffectiveLevel() if propagates else logging.CRITICAL + 1)
    log.addHandler(file)
    log.addHandler(screen)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(file)
        log.removeHandler(screen)
        log.setLevel(level)
        log.propagate = propagates
        file.close()
