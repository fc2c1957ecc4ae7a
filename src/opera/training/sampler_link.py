"""The link between samplers and losses, for ``opera train`` and for scripts; and its checkpoints.

The label column of a row holds the pair id. :meth:`SamplerLink.batch` gives the loss the sampled
batch, and :meth:`SamplerLink.observe` takes the loss's observations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import TrainerCallback

from opera.core.arrays import IntArray
from opera.core.files import finish_folder, remove, replace_file, write_arrays, writing
from opera.core.processes import process_count
from opera.core.terminal import counted, log
from opera.run_folder.folder import COMPLETE_FILE, SAMPLER_FILE, checkpoint_folders
from opera.run_folder.reading import read_arrays
from opera.training.distributed import gather_values
from opera.training.sampler import Batch, PairSampler, not_finite

PREFIX = "opera/"
"""Of the names of OPERA's curves."""


class SamplerLink(TrainerCallback):  # type: ignore[misc]
    """The samplers of a training, and the loss's access to them.

    As the trainer's callback it saves the samplers' state with each checkpoint, and logs curves.

    Attributes:
        samplers: sample the pairs; one per data set in a script, if the trainer chooses between
            the batches of several data sets.
        first_pairs: int64 ``[samplers + 1]``, the first pair id of each sampler.
        callback: this object, for the trainer.
        ended: whether the training is over.
    """

    def __init__(self) -> None:
        self.samplers: list[PairSampler] = []
        self.first_pairs: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.names: Sequence[str] = ("",)
        self.callback, self.ended = self, False

    def batch(self, pair_ids: Tensor) -> Batch:
        """Return the batch that holds pairs ``[m]`` of this process.

        Raises:
            TrainingError: if no sampler sampled these pairs.
        """
        number, ids = self._of_sampler(pair_ids.cpu().numpy())
        return self.samplers[number].batch(ids)

    def observe(self, pair_ids: Tensor, similarity: Tensor, losses: Tensor, p: Tensor) -> None:
        """Pass this process's observations, all ``[m]``, to the samplers of all processes.

        Args:
            pair_ids: the pairs.
            similarity: their cosines.
            losses: their losses, without weights.
            p: their p-values (:func:`opera.labels.ranks.p_values`).

        Raises:
            TrainingError: in every process, if a loss of any process is not a finite number.
        """
        values = torch.stack([similarity.float(), losses.float(), p.float()], dim=1)
        observed = gather_values(values).cpu().numpy()
        ids = gather_values(pair_ids.to(values.device)).cpu().numpy()
        finite = np.isfinite(observed[:, 1])
        if not finite.all():
            pairs = f"the loss of {len(ids) - finite.sum()} of {counted(len(ids), 'pair')}"
            raise not_finite(pairs, self.samplers[self._of_sampler(ids)[0]].trained_steps)
        by_process = (np.split(array, process_count()) for array in (ids, observed))
        for process_ids, columns in zip(*by_process, strict=True):
            self._observe(*self._of_sampler(process_ids), *columns.T)

    def _observe(
        self,
        number: int,
        pair_ids: IntArray,
        similarity: NDArray[np.float32],
        losses: NDArray[np.float32],
        p: NDArray[np.float32],
    ) -> None:
        """Pass a process's observations ``[m]`` to sampler ``number``."""
        self.samplers[number].observe(pair_ids, similarity, losses, p)

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
            prefix = f"{name}_" if name else ""
            curves |= {f"{prefix}{curve}": value for curve, value in values.items()}
        return {name: value for name, value in curves.items() if math.isfinite(value)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps."""
        return {str(number): part.state_dict() for number, part in enumerate(self.samplers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it belongs to other training pairs.
        """
        for number, sampler in enumerate(self.samplers):
            sampler.load_state_dict(state[str(number)])

    def _of_sampler(self, pair_ids: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
        """Return the number of the pairs' sampler, and the pair ids that the sampler uses."""
        number = int(np.searchsorted(self.first_pairs, pair_ids[0], side="right")) - 1
        return number, pair_ids - self.first_pairs[number]

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
            curves = {f"{PREFIX}{name}": value for name, value in self.curves().items()}
            logs.update(curves)
            state.log_history[-1].update(curves)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the losses accept rows without pair ids again."""
        self.ended = True


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
