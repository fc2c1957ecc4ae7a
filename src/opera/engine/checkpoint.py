"""Checkpoints: the sampler's state next to the trainer's state, and a marker written last."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opera.core.files import finish_folder, remove, replace_file, write_arrays
from opera.core.storage import writing
from opera.run_folder.folder import COMPLETE_FILE, checkpoint_folders
from opera.run_folder.reading import read_arrays

log = logging.getLogger("opera")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested mappings of arrays and numbers; an interruption leaves no partial file."""
    write_arrays(path, flatten(state))


def read_state(path: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote.

    Raises:
        RunFolderError: if the file cannot be read.
    """
    return nest(read_arrays(path))


def mark_complete(folder: Path) -> None:
    """Mark a checkpoint as complete, once its files are on the disk."""
    finish_folder(folder)
    replace_file(folder / COMPLETE_FILE, Path.touch)


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, or ``None``; delete newer incomplete ones.

    Raises:
        StorageError: if a checkpoint cannot be deleted.
    """
    for folder in reversed(checkpoint_folders(checkpoints).values()):
        if not folder.is_symlink() and (folder / COMPLETE_FILE).is_file():
            return folder
        log.info("note: %s is incomplete; trying the previous checkpoint", folder.name)
        with writing(folder):
            remove(folder)
    return None


def flatten(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with keys joined by ``/``."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat.update(
            flatten(value, f"{prefix}{key}/")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo :func:`flatten`; numbers are Python numbers again."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *folders, name = key.split("/")
        parent = nested
        for folder in folders:
            parent = parent.setdefault(folder, {})
        parent[name] = value if value.ndim else value.item()
    return nested
