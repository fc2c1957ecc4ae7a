"""``opera.PairPruning``: the sampler of ``opera train`` in a sentence-transformers script of one's
own.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import BatchSamplers, DefaultBatchSampler
from torch import Tensor, nn
from torch.utils.data import RandomSampler
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.errors import ModelError, RunFolderError, SettingError, TrainingError
from opera.core.processes import process_count, process_index
from opera.core.terminal import shown
from opera.methods import AUTO, DEFAULT_METHOD, PairScores, Plan, method_named
from opera.training.checkpoint import read_state, write_state
from opera.training.distributed import refuse_differences
from opera.training.loss import observed_everywhere
from opera.training.pruning.batches import Given, PrunedBatches, PrunedSet, Timetable, read_again
from opera.training.pruning.losses import LossWatch, checked_temperature, refuse_other_batch
from opera.training.pruning.pair_rows import WHOLE, PairEmbeddings, PairRows, read_all
from opera.training.sampler import PairSampler

STATE_FILE = "opera_pruning.npz"
"""The samplers' state, in the trainer's checkpoint."""


class PairPruning:
    """Draws the batches of a ``SentenceTransformerTrainer`` by one of OPERA's methods.

        pruning = opera.PairPruning(model, dataset, method="dp", args=args)
        args.batch_sampler = pruning.sampler
        loss = pruning.watch(loss)
        trainer = SentenceTransformerTrainer(model, args, dataset, loss=loss,
        callbacks=[pruning.callback])

    A row of the data set is a pair: the first text column is the query, the second its positive
    document; rows with the same query belong together. A batch of the trainer is one step of the
    method. Each loss of training belongs to the batch that was given out first of those not trained
    yet; the tokens of its queries are compared with those drawn, and a difference stops training.
    Losses of evaluations are left alone. See docs/coming-from-sentence-transformers.md.

    Args:
        model: the model, before it trains; where the method starts from its scores, it encodes the
            data set now.
        dataset: a ``datasets.Dataset``, or a ``DatasetDict`` of several, the same object that the
            trainer gets.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``, one that you
            registered, or ``auto`` for :data:`opera.methods.DEFAULT_METHOD`.
        args: the trainer's arguments: they say how long the training is, how far its loader reads
            ahead, and the prompts. Without them, and without the callback, one epoch with none of
            these is expected.
        temperature: divides the cosines in the losses that the method observes; by default that of
            the loss.
        settings: the method's own, such as ``alpha_end=3`` or ``k=0.5``.

    Raises:
        SettingError: for an unknown method or setting, or arguments under which no sampler can know
            its batches.
        DataError: for a data set that has no pairs of texts.
        ModelError: for anything but a SentenceTransformer.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        dataset: Any,
        method: str = "dp",
        *,
        args: Any = None,
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(model, SentenceTransformer):
            raise ModelError(
                f"model: must be a SentenceTransformer, got {shown(type(model).__name__)}"
            )
        self.model, self.method = model, method_named(DEFAULT_METHOD if method == AUTO else method)
        self.method_settings = self.method.settings_class.parse(settings)
        self.temperature = checked_temperature(temperature)
        self._args, self.timetable = args, Timetable() if args is None else Timetable.of(args)
        self._waiting, self._taken = deque[Given](), list[Given]()
        self._watches: dict[str, LossWatch] = {}
        self._batch_size, self._seed, self._began = 0, 0, False
        self._sets = [PrunedSet(rows, None) for rows in read_all(dataset)]
        for part in self._sets:
            self.method.check(
                self.method_settings, part.rows.pairs.n_queries, part.rows.pairs.n_pairs
            )
            if self.method.needs_scores(self.method_settings):
                part.embeddings = PairEmbeddings.of(model, part.rows, self._argument("prompts"))
        self.sampler, self.callback = SamplerOf(self), PruningCallback(self)

    def watch(self, loss: Any) -> Any:
        """Let a loss report what the method observes; returns the loss, to be passed to the
        trainer.

        Args:
            loss: a loss over (anchor, positive, negatives), a function that makes one of the model,
                or a dictionary of either by the name of the data set.

        Raises:
            SettingError: if the loss has no temperature and none is given, or if the method weighs
                pairs and the loss cannot.
        """
        if isinstance(loss, Mapping):
            return {name: self._watch(one, name) for name, one in loss.items()}
        return self._watch(loss, WHOLE)

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs
        trained so far.
        """
        return {name: value for part in self._sets for name, value in part.curves().items()}

    def use_arguments(self, args: Any) -> None:
        """Take the arguments of the trainer that trains.

        Raises:
            SettingError: if they hold prompts that the pairs were scored without.
        """
        scored_with, scored = self._argument("prompts"), any(part.embeddings for part in self._sets)
        self._args, self.timetable = args, Timetable.of(args)
        if scored and (scored_with or None) != (args.prompts or None):
            raise SettingError(
                f"args.prompts={shown(args.prompts)}: the pairs were scored with "
                f"{shown(scored_with)}; give "
                "PairPruning the trainer's arguments (args=args)"
            )

    def refuse_unread(self) -> None:
        """Refuse a trainer that has asked for its batches, and not for those of PairPruning.

        Raises:
            SettingError: naming the sampler or data set that it reads instead, where the arguments
                are known.
        """
        if self._args is None or any(part.length for part in self._sets):
            return
        given = self._args.batch_sampler
        if given is self.sampler:
            raise SettingError(
                "train_dataset: is another object than the dataset that PairPruning was given; "
                "give both the same"
            )
        name = f"BatchSamplers.{given.name}" if isinstance(given, BatchSamplers) else shown(given)
        raise SettingError(
            f"args.batch_sampler: is {name}, not pruning.sampler; set args.batch_sampler = "
            f"pruning.sampler before "
            "training"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps, for :meth:`load_state_dict`."""
        return {str(number): part.state_dict() for number, part in enumerate(self._sets)}

    def load_state_dict(self, state: Mapping[str, Any], trained_steps: int, per_epoch: int) -> None:
        """Restore what :meth:`state_dict` returned, before the first batch is read.

        Args:
            state: what it returned.
            trained_steps: optimizer steps of the checkpoint that the trainer resumes from.
            per_epoch: batches per epoch and process.

        Raises:
            TrainingError: if it belongs to other pairs.
            ValueError: if the trainer will skip other batches.
        """
        self._begin()
        skipped = self.timetable.skipped(trained_steps, per_epoch) * process_count()
        found = [
            part.load_state_dict(state[str(number)], skipped > 0)
            for number, part in enumerate(self._sets)
        ]
        if sum(found) != skipped:
            raise ValueError(
                f"of this epoch {sum(found)} batches were trained, and the trainer skips {skipped}"
            )

    def _argument(self, name: str) -> Any:
        """Return one of the trainer's arguments; ``None`` where they are not known."""
        return getattr(self._args, name, None)

    def batches(self, dataset: Any, **how: Any) -> DefaultBatchSampler:
        """Return the batch sampler of a data set: ours where it trains, the usual one for any
        other.

        Raises:
            SettingError: if a batch would hold a query twice.
            TrainingError: if training has begun, so that something else reads the data set too.
        """
        part = next((part for part in self._sets if part.rows.dataset is dataset), None)
        if part is None:
            return DefaultBatchSampler(
                RandomSampler(dataset, generator=how.get("generator")), **how
            )
        if self._began:
            raise read_again(part.rows.place)
        self._batch_size, self._seed = how["batch_size"], how.get("seed") or 0
        if self._batch_size > part.rows.pairs.n_queries:
            raise SettingError(
                f"per_device_train_batch_size={self._batch_size}: more than the "
                f"{part.rows.pairs.n_queries} distinct "
                f"queries of {part.rows.place}, so a batch would hold one twice; give that number "
                f"or less"
            )
        return PrunedBatches(part, self._waiting, self._begin, process_count(), dataset, **how)

    def _begin(self) -> None:
        """Make the samplers of the data sets that have none yet."""
        if not self._watches:
            raise SettingError(
                "PairPruning: no loss is watched; call loss = pruning.watch(loss) before the "
                "trainer is made"
            )
        if self._began:
            return
        self._began = True
        for part in self._sets:
            part.sampler = self._make_sampler(part)
            part.random_turns = len(self._sets) > 1 and not self.timetable.round_robin

    def _make_sampler(self, part: PrunedSet) -> PairSampler:
        rows, processes, scores = part.rows, process_count(), None
        watch = self._watches.get(rows.name) or next(iter(self._watches.values()))
        if part.embeddings is not None:
            documents = (
                self._batch_size * (len(rows.columns) - 1) * (processes if watch.across else 1)
            )
            scores = part.embeddings.scores(
                rows, self.method, self.method_settings, watch.temperature, documents, self._seed
            )
        if processes > 1:
            refuse_differences("training pairs or scores", _fingerprint(rows, scores))
        lengths = [other.length for other in self._sets]
        steps = self.timetable.draws(lengths, part.length, processes)
        method = self.method(
            rows.pairs, Plan(self._seed, steps, self._batch_size), self.method_settings, scores
        )
        return PairSampler(
            method, rows.pairs, None, 0, self._batch_size, self.timetable.lag(processes)
        )

    def _watch(self, loss: Any, name: str) -> nn.Module:
        made = loss if isinstance(loss, nn.Module) else loss(self.model)
        if any(watch.loss is made for watch in self._watches.values()):
            return made
        if all(module is not self.model for module in made.modules()):
            raise SettingError(
                f"loss: {type(made).__name__} was made with another model than PairPruning; use "
                f"the same"
            )
        watch = LossWatch(self.model, made, self.temperature, self._take, self._observe)
        if self.method.weighs and not watch.weighs:
            raise SettingError(
                f"method={self.method.name}: weighs each pair's loss, and {type(made).__name__} as "
                f"it is set cannot; "
                "use MultipleNegativesRankingLoss over cosines in one direction, or another method"
            )
        self._watches[name] = watch
        return made

    def _take(self, queries: dict[str, Tensor]) -> Tensor | None:
        """Find the batch that a loss of training got, and return its weights, where it has any.

        Every process iterates all batches and trains the one of its own place: of W in a row,
        process r trains the r-th.
        """
        self.refuse_unread()
        if len(self._waiting) < process_count():
            raise TrainingError(
                "PairPruning: the loss got a batch that was not drawn: the trainer's train_dataset "
                "must be the dataset "
                "that PairPruning was given, args.batch_sampler its sampler, and each training "
                "needs a PairPruning of "
                "its own"
            )
        self._taken = [self._waiting.popleft() for _ in range(process_count())]
        own = self._taken[process_index()]
        prompts, routes = self._argument("prompts"), self._argument("router_mapping")
        refuse_other_batch(queries, own, self.model, prompts, routes)
        weights = own.source.sampler.batch_at(own.step, 0).weights
        return None if bool((weights == 1).all()) else torch.from_numpy(weights)

    def _observe(self, similarity: Tensor, losses: Tensor) -> None:
        """Pass on what every process saw of its batch."""
        own = self._taken[process_index()]
        pair_ids = own.source.sampler.pairs_of(own.step)
        seen = observed_everywhere(own.step, pair_ids.astype(np.int64), similarity, losses)
        for (part, step), values in zip(self._taken, np.split(seen, len(self._taken)), strict=True):
            part.train(step, part.sampler.pairs_of(step), values[:, 0], values[:, 1])


def _fingerprint(rows: PairRows, scores: PairScores | None) -> int:
    """A number that differs where texts, pairs or scores differ."""
    total = zlib.crc32(rows.data.fingerprint.encode(), rows.pairs.fingerprint)
    for values in () if scores is None else (scores.similarity, scores.loss):
        total = zlib.crc32(np.ascontiguousarray(values).tobytes(), total)
    return total


class SamplerOf:
    """What ``args.batch_sampler`` takes: the trainer calls it for the batch sampler of each data
    set.

    Trainers save their arguments by pickle; what they save of this is only that it was there.
    """

    def __init__(self, pruning: PairPruning) -> None:
        self._pruning = pruning

    def __call__(self, dataset: Dataset, **how: Any) -> DefaultBatchSampler:
        """Return the batch sampler; arguments are those of any batch sampler of
        sentence-transformers.
        """
        return self._pruning.batches(dataset, **how)

    def __deepcopy__(self, memo: Any) -> SamplerOf:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return partial, (_saved_sampler,)


def _saved_sampler(*args: Any, **kwargs: Any) -> Any:
    raise SettingError(
        "args.batch_sampler: was a PairPruning, which is not saved with arguments; make one, and "
        "set "
        "args.batch_sampler = pruning.sampler"
    )


class PruningCallback(TrainerCallback):  # type: ignore[misc]
    """Saves and restores the samplers with the trainer's checkpoints, and adds their schedule to
    the log.

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
                f"{file}: does not exist, so the draws of this training cannot be resumed; "
                f"checkpoints hold it where "
                "callbacks=[pruning.callback] is passed to the trainer, and are resumed from "
                "args.output_dir"
            )
        saved = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        if saved.log_history != state.log_history:
            raise RunFolderError(
                f"{folder}: is of another training than the one that is resumed; resume from a "
                f"checkpoint of "
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
                f"{file}: belongs to other rows than the dataset has now; resume with the same "
                f"data set"
            ) from None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the samplers' state beside the trainer's, in the main process; every process holds
        the same.
        """
        if state.is_world_process_zero:
            write_state(
                Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE_FILE,
                self.pruning.state_dict(),
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
