"""What ``opera train`` and a script share: the pairs that a loss trains on, what was observed of
them, and their state in checkpoints.

A row carries its pair's id in the label column. :meth:`Pruning.batch` tells the loss which draw a
batch is, and :meth:`Pruning.observe` takes what the loss saw. Nothing else passes between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import TrainerCallback

from opera.core.arrays import IntArray
from opera.core.processes import process_count
from opera.engine.checkpoint import write_state
from opera.engine.distributed import gather_values
from opera.engine.sampler import Batch, NotFiniteError, PairSampler
from opera.runs.folder import SAMPLER_FILE

if TYPE_CHECKING:
    from opera.engine.loss import InBatchLoss

PREFIX = "opera/"
"""Before the names of OPERA's own curves."""


class Pruning:
    """The draws of a training.

    Attributes:
        samplers: they draw the pairs; several for the data sets of a script, whose batches the
            trainer chooses between.
        first_pairs: int64 ``[samplers + 1]``, the first pair id of each sampler's pairs.
        callback: saves the state with each checkpoint, and logs curves.
        ended: whether the training is over.
    """

    def __init__(self) -> None:
        self.samplers: list[PairSampler] = []
        self.first_pairs: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.names: Sequence[str] = ("",)
        self.callback, self.ended = PruningCallback(self), False

    def batch(self, pair_ids: Tensor) -> Batch:
        """Return the batch that this process trains on with pairs ``[m]``.

        Raises:
            TrainingError: if they were not drawn.
        """
        number, ids = self._of_sampler(pair_ids.cpu().numpy())
        return self.samplers[number].batch(ids)

    def observe(self, pair_ids: Tensor, similarity: Tensor, losses: Tensor, p: Tensor) -> None:
        """Take what this process saw of its pairs, each ``[m]``; every process keeps all.

        Args:
            pair_ids: the pairs.
            similarity: their cosines.
            losses: their losses, without weights.
            p: their p-values, of :func:`opera.labels.ranks.p_values`.

        Raises:
            TrainingError: in every process, if a loss of any process is not a finite number.
        """
        seen = torch.stack([similarity.float(), losses.float(), p.float()], dim=1)
        observed = gather_values(seen).cpu().numpy()
        ids = gather_values(pair_ids.to(seen.device)).cpu().numpy()
        finite = np.isfinite(observed[:, 1])
        if not finite.all():
            step = self.samplers[self._of_sampler(ids)[0]].trained_steps
            raise NotFiniteError("the loss", step, ids, finite)
        parts = (np.split(array, process_count()) for array in (ids, observed))
        for of_process, values in zip(*parts, strict=True):
            self._observe(*self._of_sampler(of_process), *values.T)

    def _observe(
        self,
        number: int,
        pair_ids: IntArray,
        similarity: NDArray[np.float32],
        losses: NDArray[np.float32],
        p: NDArray[np.float32],
    ) -> None:
        """Take what a process saw of pairs of a sampler, ``[m]``."""
        self.samplers[number].observe(pair_ids, similarity, losses, p)

    def curves(self) -> dict[str, float]:
        """Return the schedule at the last step that was trained, and the fractions of pairs and of
        queries that were trained so far."""
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

    def watch(self, loss: InBatchLoss) -> InBatchLoss:
        """Let a loss of OPERA read its batches here, and report what it observes; return it."""
        loss.pruning = self
        return loss

    def begin(self, args: Any, state: Any, loader: Any) -> None:
        """Get ready, when a trainer begins; what a run prepares is ready."""

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
        """Return the sampler of a batch's pairs, and their ids in it."""
        number = int(np.searchsorted(self.first_pairs, pair_ids[0], side="right")) - 1
        return number, pair_ids - self.first_pairs[number]


class PruningCallback(TrainerCallback):  # type: ignore[misc]
    """Begins with the training, saves the state with the trainer's checkpoints, and adds curves to
    the log. Pass it as ``callbacks=[pruning.callback]``.
    """

    def __init__(self, pruning: Pruning) -> None:
        self.pruning = pruning

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Get ready; where the trainer resumes, take up the state of its checkpoint."""
        self.pruning.begin(args, state, kwargs["train_dataloader"])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the state beside the trainer's, in the main process; every process holds the
        same."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_state(folder / SAMPLER_FILE, self.pruning.state_dict())

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add the curves to the log line of a training step."""
        if logs is not None and "loss" in logs:
            curves = {f"{PREFIX}{name}": value for name, value in self.pruning.curves().items()}
            logs.update(curves)
            state.log_history[-1].update(curves)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let losses train on other rows again."""
        self.pruning.ended = True
