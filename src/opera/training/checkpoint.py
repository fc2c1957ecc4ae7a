"""Checkpoints that can be trusted: the sampler's state beside the trainer's, sealed with the hash
of every file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.errors import OperaError, RunFolderError, is_out_of_memory
from opera.core.files import remove, replace_file, share_as_folder
from opera.core.reading import open_file
from opera.core.storage import storage_error, writing
from opera.core.terminal import in_one_line, shortened
from opera.runs.folder import SAMPLER_FILE, WHOLE_FILE, checkpoint_folders
from opera.runs.reading import read_arrays, read_object

log = logging.getLogger("opera")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested mappings of arrays and numbers, whole or not at all."""
    arrays = flatten(state)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)

    replace_file(path, write)


def read_state(path: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote.

    Raises:
        RunFolderError: if the file is not as OPERA wrote it.
    """
    return nest(read_arrays(path))


@contextmanager
def loading(checkpoint: Path | None, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn whatever a checkpoint's contents make of the block into one error, until training has
    begun.

    Raises:
        RunFolderError: naming the checkpoint, and what to do.
    """
    try:
        yield
    except OperaError:
        raise
    except Exception as error:
        if checkpoint is None or begun() or is_out_of_memory(error):
            raise
        raise RunFolderError(
            f"{checkpoint}: cannot be resumed ({in_one_line(error)}); remove it to resume "
            "from the checkpoint before, or pass --overwrite to start again"
        ) from error


def seal(folder: Path) -> None:
    """Mark a checkpoint as complete: the SHA-256 of each of its files."""
    share_as_folder(folder)
    text = json.dumps(_hashes(folder), indent=1)
    replace_file(
        folder / WHOLE_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8")
    )


def damage(folder: Path) -> str:
    """Describe what is wrong with a checkpoint; an empty string where it is complete.

    Raises:
        StorageError: if the machine keeps it from being read, so that nobody knows.
    """
    if folder.is_symlink() or not os.path.lexists(folder / WHOLE_FILE):
        return "it was not written in full"
    try:
        sealed, found = read_object(folder / WHOLE_FILE), _hashes(folder)
    except PermissionError as error:  # it may be whole: it is not for us to remove
        raise storage_error(folder, error) from None
    except (OSError, RunFolderError) as error:
        return f"it cannot be read: {in_one_line(error)}"
    for name in (SAMPLER_FILE, TRAINER_STATE_NAME, *sealed):
        if name not in found or found[name] != sealed.get(name):
            return f"{shortened(name)} is damaged"
    return ""


def _hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a checkpoint but the seal, by name; links, pipes and the like
    have none."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != WHOLE_FILE:
            with open_file(path) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, or ``None``; remove damaged and incomplete ones, with
    a warning.

    Raises:
        StorageError: if one cannot be removed.
    """
    for folder in reversed(checkpoint_folders(checkpoints).values()):
        problem = damage(folder)
        if not problem:
            return folder
        log.info("note: %s cannot be used (%s); resuming from the one before", folder.name, problem)
        with writing(folder):
            remove(folder)
    return None


def flatten(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into one, with keys joined by ``/``."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat.update(
            flatten(value, f"{prefix}{key}/")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo :func:`flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *folders, name = key.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return nested
