"""Checkpoints that can be trusted: the sampler's state beside the trainer's, sealed with the hash of every file."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.files import replace_file
from opera.runs.folder import SAMPLER_FILE, WHOLE_FILE
from opera.training.sampler import PairSampler

log = logging.getLogger("opera")


def save_sampler(folder: Path, sampler: PairSampler) -> None:
    """Write the sampler's state into a checkpoint of the trainer, then seal the checkpoint."""
    arrays = flatten(sampler.state_dict())

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **arrays)

    replace_file(folder / SAMPLER_FILE, write)
    seal(folder)


def load_sampler(folder: Path, sampler: PairSampler) -> None:
    """Restore the sampler's state from a checkpoint.

    Raises:
        TrainingError: if it belongs to other training pairs.
    """
    with np.load(folder / SAMPLER_FILE) as arrays:
        sampler.load_state_dict(nest({name: arrays[name] for name in arrays.files}))


def seal(folder: Path) -> None:
    """Mark a checkpoint as complete: the SHA-256 of each of its files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != WHOLE_FILE]
    hashes = {str(path.relative_to(folder)): _sha256(path) for path in files}
    text = json.dumps(hashes, indent=1)
    replace_file(folder / WHOLE_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def damage(folder: Path) -> str:
    """Describe what is wrong with a checkpoint; an empty string where it is complete."""
    try:
        hashes = json.loads((folder / WHOLE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "writing it was interrupted"
    for name, sha256 in hashes.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if _sha256(folder / name) != sha256:
            return f"{name} is damaged"
    return ""


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, or ``None``; remove damaged and incomplete ones, with a warning."""
    folders = sorted(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[-1]))
    for folder in reversed(folders):
        problem = damage(folder)
        if not problem:
            return folder
        log.info("note: %s cannot be used (%s); resuming from the one before", folder.name, problem)
        shutil.rmtree(folder)
    return None


def stopped_early(checkpoint: Path, patience: int | None) -> bool:
    """Whether patience had run out when a checkpoint was saved; transformers restores the count, not the stop."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    callback = state.stateful_callbacks.get("EarlyStoppingCallback", {})
    count = callback.get("attributes", {}).get("early_stopping_patience_counter", 0)
    return patience is not None and count >= patience


def flatten(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into one, with keys joined by ``/``."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat.update(flatten(value, f"{prefix}{key}/") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
