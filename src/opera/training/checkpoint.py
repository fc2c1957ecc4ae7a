"""Save and load the state of samplers with the trainer's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.core.files import finish_folder, remove, replace_file, write_arrays, writing
from opera.core.terminal import log
from opera.run_folder.folder import COMPLETE_FILE, SAMPLER_FILE, checkpoint_folders
from opera.run_folder.reading import read_arrays
from opera.training.sampler import Sampler

PREFIX = "opera/"
"""The names of OPERA's curves begin with it."""


class SamplerCallback(TrainerCallback):  # type: ignore[misc]
    """Saves the state of samplers with each checkpoint of the trainer, and logs their curves.

    Attributes:
        samplers: a run has one; a script has one per data set.
        names: of the data sets, which begin the names of their curves.
    """

    def __init__(self, samplers: Sequence[Sampler] = (), names: Sequence[str] = ("",)) -> None:
        self.samplers, self.names = list(samplers), names

    def curves(self) -> dict[str, float]:
        """Return the schedule at the last trained step, and the fractions of pairs and queries that
        were trained so far."""
        curves: dict[str, float] = {}
        for name, sampler in zip(self.names, self.samplers, strict=False):
            queries = np.logical_or.reduceat(sampler.trained, sampler.pairs.query_offsets[:-1])
            values = {
                **sampler.schedule,
                "coverage_pairs": float(sampler.trained.mean()),
                "coverage_queries": float(queries.mean()),
            }
            prefix = f"{PREFIX}{name}_" if name else PREFIX
            curves |= {f"{prefix}{curve}": value for curve, value in values.items()}
        return {name: value for name, value in curves.items() if math.isfinite(value)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps."""
        return {str(number): sampler.state_dict() for number, sampler in enumerate(self.samplers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it belongs to other training pairs.
        """
        for number, sampler in enumerate(self.samplers):
            sampler.load_state_dict(state[str(number)])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the state next to the trainer's; only the main process does, for all are equal."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_arrays(folder / SAMPLER_FILE, flatten(self.state_dict()))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add the curves to the log line of a training step."""
        if logs is not None and "loss" in logs:
            logs.update(self.curves())
            state.log_history[-1].update(self.curves())


def read_state(path: Path) -> dict[str, Any]:
    """Read the state in a checkpoint.

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
