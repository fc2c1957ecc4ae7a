"""Checkpoints: the sampler's state next to the trainer's, and a marker that is written last."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from opera.core.files import finish_folder, remove, replace_file
from opera.core.storage import writing
from opera.runs.folder import COMPLETE_FILE, checkpoint_folders

log = logging.getLogger("opera")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested mappings of arrays and numbers, whole or not at all."""
    tensors = tree_map(lambda value: torch.from_numpy(np.array(value)), dict(state))
    replace_file(path, partial(torch.save, tensors))


def read_state(path: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote; numbers come back as arrays of no axis."""
    state: dict[str, Any] = tree_map(Tensor.numpy, torch.load(path, weights_only=True))
    return state


def mark_complete(folder: Path) -> None:
    """Write the marker of a complete checkpoint, once its files are on the disk."""
    finish_folder(folder)
    names = sorted(path.name for path in folder.iterdir())
    replace_file(folder / COMPLETE_FILE, partial(Path.write_text, data="\n".join(names)))


def is_complete(folder: Path) -> bool:
    """Whether a checkpoint was written in full, and not removed in part since."""
    marker = folder / COMPLETE_FILE
    if folder.is_symlink() or not marker.is_file():
        return False
    return all((folder / name).exists() for name in marker.read_text().split("\n"))


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, or ``None``; remove incomplete ones, with a note.

    Raises:
        StorageError: if one cannot be removed.
    """
    for folder in reversed(checkpoint_folders(checkpoints).values()):
        if is_complete(folder):
            return folder
        log.info("note: %s is incomplete; resuming from the one before", folder.name)
        with writing(folder):
            remove(folder)
    return None
