"""What a trainer reports to the sampler: its arguments, checkpoints to save and to resume from, log lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.errors import RunFolderError, TrainingError
from opera.training.checkpoint import read_state, write_state

if TYPE_CHECKING:
    from opera.training.pruning.pair_pruning import PairPruning

STATE_FILE = "opera_pruning.npz"
"""The samplers' state, in the trainer's checkpoint."""


class PruningCallback(TrainerCallback):  # type: ignore[misc]
    """Saves and restores the samplers with the trainer's checkpoints, and adds their schedule to the log.

    Pass it as ``callbacks=[pruning.callback]``. Without it a training cannot be resumed.
    """

    def __init__(self, pruning: PairPruning) -> None:
        self.pruning = pruning

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the trainer's arguments; where it resumes, take up the samplers' state.

        Raises:
            SettingError: if the trainer reads its batches from another sampler or data set.
            RunFolderError: if the checkpoint holds none, or not that of this training.
        """
        self.pruning.use_arguments(args)
        self.pruning.refuse_unread()
        if state.global_step == 0:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        file = folder / STATE_FILE
        if not file.is_file():
            raise RunFolderError(
                f"{file}: does not exist, so the draws of this training cannot be resumed; checkpoints hold it where "
                "callbacks=[pruning.callback] is passed to the trainer, and are resumed from args.output_dir"
            )
        saved = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        if saved.log_history != state.log_history:
            raise RunFolderError(
                f"{folder}: is of another training than the one that is resumed; resume from a checkpoint of "
                "args.output_dir"
            )
        try:
            self.pruning.load_state_dict(
                read_state(file), state.global_step, len(kwargs["train_dataloader"])
            )
        except (KeyError, ValueError) as error:
            raise RunFolderError(
                f"{file}: cannot be read ({error}); resume from another checkpoint"
            ) from None
        except TrainingError:
            raise RunFolderError(
                f"{file}: belongs to other rows than the dataset has now; resume with the same data set"
            ) from None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the samplers' state beside the trainer's, in the main process; every process holds the same."""
        if state.is_world_process_zero:
            write_state(
                Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE_FILE,
                self.pruning.state_dict(state.global_step),
            )

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add the schedule and the coverage to the log line of a training step."""
        if logs is None or "loss" not in logs:
            return
        curves = self.pruning.curves()
        logs.update(curves)
        if state.log_history:
            state.log_history[-1].update(curves)
