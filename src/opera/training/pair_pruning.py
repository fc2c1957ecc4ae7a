"""``opera.PairPruning``: the sampler of ``opera train`` in a script of sentence-transformers."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler, MultiDatasetBatchSamplers
from torch import Tensor, nn
from torch.utils.data import RandomSampler
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.errors import ModelError, RunFolderError, SettingError, TrainingError
from opera.core.processes import process_count, process_index
from opera.core.terminal import shown
from opera.methods import AUTO, DEFAULT_METHOD, Plan, method_named
from opera.methods.first_visits import FalsePairs
from opera.training.checkpoint import read_state, write_state
from opera.training.distributed import refuse_differences
from opera.training.list_columns import ListsOpened
from opera.training.loss import observed_everywhere
from opera.training.pair_batches import (
    ADVICE,
    AGAIN,
    WHOLE,
    Given,
    PrunedSet,
    SamplerOf,
    check_arguments,
    read_all,
)
from opera.training.pair_losses import LossWatch, token_rows
from opera.training.sampler import PairSampler
from opera.training_set.documents import DocumentPool
from opera.training_set.pretrained_scores import pretrained_scores

STATE_FILE = "opera_pruning.npz"
"""The samplers' state, in the trainer's checkpoint."""
DEFAULT_PREFETCH = 2
"""Batches that each worker of torch's loader reads ahead."""


class PairPruning:
    """Draws the batches of a ``SentenceTransformerTrainer`` by one of OPERA's methods.

        pruning = opera.PairPruning(model, dataset, args=args)
        args.batch_sampler = pruning.sampler
        loss = pruning.watch(loss)
        trainer = SentenceTransformerTrainer(model, args, dataset, loss=loss,
        callbacks=[pruning.callback])

    A row of the data set is a pair: the first text column is the query, the second its positive
    document; rows with the same query belong together. Rows with a label of 0 do not train; labels
    that are all 0 say nothing, and those with fractions are scores for the loss.

    A batch of the trainer is one step of the method. The tokens of its queries are compared with
    those drawn, and a difference stops training. See docs/coming-from-sentence-transformers.md.

    Args:
        model: the model, before it trains; where the method starts from its scores, it encodes the
            data set now.
        dataset: a ``datasets.Dataset``, or several by name, the same objects that the trainer gets.
            The texts of lists of negatives are columns, as many as the shortest list has.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``,
            ``denoise``, one that you registered, or ``auto`` for
            :data:`opera.methods.DEFAULT_METHOD`.
        args: the trainer's arguments, for the prompts that the data set is encoded with; needed
            where there are any.
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
        method: str = AUTO,
        *,
        args: Any = None,
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(model, SentenceTransformer):
            raise ModelError(
                f"model: must be a SentenceTransformer, got {shown(type(model).__name__)}"
            )
        if not isinstance(method, str):
            raise SettingError(
                f"method: must be a name such as 'denoise', got {shown(type(method).__name__)}; "
                "the trainer's arguments are given as args=args"
            )
        number = isinstance(temperature, Real) and not isinstance(temperature, bool)
        if temperature is not None and not (number and 0 < temperature < math.inf):
            raise SettingError(f"temperature: must be a number above 0, got {shown(temperature)}")
        if args is not None:
            check_arguments(args)
        self.model, self.method = model, method_named(DEFAULT_METHOD if method == AUTO else method)
        self.method_settings = self.method.settings_class.parse(settings)
        self.temperature, self._prompts = temperature, getattr(args, "prompts", None) or None
        self._waiting, self._taken = deque[Given](), list[Given]()
        self._watches: dict[str, LossWatch] = {}
        self._sets: list[PrunedSet] = []
        self._seed = 0
        self._collate: Callable[[list[Any]], dict[str, Any]]
        for rows in read_all(dataset):
            self.method.check(self.method_settings, rows.pairs.n_queries, rows.pairs.n_pairs)
            scored = self.method.needs_scores(self.method_settings)
            vectors = rows.encode(model, self._prompts) if scored else None
            self._sets.append(PrunedSet(rows, vectors, self._waiting))
        self.sampler, self.callback = SamplerOf(self.batches), PruningCallback(self)

    def watch(self, loss: Any) -> Any:
        """Let a loss report what the method observes, until training ends; returns the loss.

        Args:
            loss: a loss over (anchor, positive, negatives), a function that makes one of the model,
                or a dictionary of either by the name of the data set.

        Raises:
            SettingError: for anything but losses, if the loss has no temperature and none is
                given, or if the method weighs pairs and the loss cannot.
        """
        if isinstance(loss, Mapping):
            return {name: self._watch(one, name) for name, one in loss.items()}
        return self._watch(loss, WHOLE)

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs
        trained so far.
        """
        begun = [part for part in self._sets if hasattr(part, "sampler")]
        return {name: value for part in begun for name, value in part.curves().items()}

    def false_pairs(self, name: str = WHOLE) -> FalsePairs | None:
        """Say which rows look false by their first visits so far (docs/false-labels.md), whatever
        the method.

        Args:
            name: of the data set, where there are several.

        Returns:
            The share of false pairs with its interval, the ``probability`` of each row of the
            data set, float32, NaN without a first visit, and the ``suspicious`` rows, int64, the
            worst first; ``None`` while fewer than 300 rows were trained on.

        Raises:
            SettingError: before training, or for an unknown name.
        """
        part = next((part for part in self._sets if part.rows.name == name), None)
        if part is None:
            names = [part.rows.name for part in self._sets]
            raise SettingError(f"false_pairs: name must be of {names}, got {shown(name)}")
        if not hasattr(part, "sampler"):
            raise SettingError("false_pairs: nothing is trained yet; call it after trainer.train()")
        return part.false_pairs()

    def batches(self, dataset: Any, **how: Any) -> Any:
        """Return the batch sampler of a data set: ours where it trains, the usual one for any
        other.

        Raises:
            SettingError: if a batch would hold a query twice.
            TrainingError: if something has read the data set's batches before.
        """
        part = next((part for part in self._sets if part.rows.dataset is dataset), None)
        if part is None:
            random = RandomSampler(dataset, generator=how.get("generator"))
            return DefaultBatchSampler(random, **how)
        if part.length:
            raise TrainingError(
                f"PairPruning: {part.rows.data.source} is read again, by a second training or an "
                f"evaluation; {AGAIN}"
            )
        size, queries = how["batch_size"], part.rows.pairs.n_queries
        if size > queries:
            raise SettingError(
                f"per_device_train_batch_size={size}: more than the {queries} distinct queries of "
                f"{part.rows.data.source}, so a batch would hold one twice; give that number or "
                "less"
            )
        part.batch_size, self._seed, whole = size, how.get("seed") or 0, size * process_count()
        steps = part.rows.pairs.n_pairs / whole
        part.length = (int(steps) if how["drop_last"] else math.ceil(steps)) * process_count()
        return part

    def begin(self, args: Any, max_steps: int, loader: Any) -> None:
        """Make the samplers, for the trainer that trains.

        When the first batch of an optimizer step is trained, accelerate has read the batch after
        that step, and the loader's workers those that they hold. Each is one draw in every process:
        that is the lag.

        Args:
            args: its arguments.
            max_steps: its optimizer steps.
            loader: its loader.

        Raises:
            SettingError: for arguments that do not fit, such as prompts that the pairs were scored
                without.
        """
        check_arguments(args)
        scored = any(part.vectors for part in self._sets)
        if scored and self._prompts != (args.prompts or None):
            raise SettingError(
                f"args.prompts={shown(args.prompts)}: the pairs were scored with "
                f"{shown(self._prompts)}; give PairPruning the trainer's arguments (args=args)"
            )
        if not self._watches:
            raise SettingError(
                "PairPruning: no loss is watched; call loss = pruning.watch(loss) before the "
                "trainer is made"
            )
        if args.batch_sampler is not self.sampler:
            raise SettingError(
                f"args.batch_sampler: must be pruning.sampler, got {shown(args.batch_sampler)}"
            )
        if not all(part.length for part in self._sets):
            raise SettingError(
                "PairPruning: the trainer's train_dataset is another object than the dataset that "
                "PairPruning was given, as filter, map, shuffle and select return; give both the "
                "same"
            )
        processes, accumulation = process_count(), args.gradient_accumulation_steps
        prefetched = args.dataloader_prefetch_factor or DEFAULT_PREFETCH
        lag = processes * (accumulation + 1 + args.dataloader_num_workers * prefetched)
        per_epoch, self._collate = len(loader), self._opening(loader)
        epochs, left = divmod(max_steps, _updates(args, loader))
        read = (epochs * per_epoch + min(left * accumulation, per_epoch)) * processes
        in_turns = args.multi_dataset_batch_sampler == MultiDatasetBatchSamplers.ROUND_ROBIN
        lengths = [1 if in_turns else part.length for part in self._sets]
        for part, length in zip(self._sets, lengths, strict=True):
            draws = max(1, math.ceil(read * length / sum(lengths)))
            part.sampler = self._sampler(part, draws, lag)

    def _opening(self, loader: Any) -> Callable[[list[Any]], dict[str, Any]]:
        """Let the loader open lists of negatives; return its collator."""
        lists = dict[str, int]()
        for part in self._sets:
            for column, count in part.rows.lists.items():
                lists[column] = min(lists.get(column, count), count)
        opening = ListsOpened(loader.collate_fn, lists)
        if lists:
            opening.collate.prompts = opening.prompts(opening.collate.prompts)
            for each in (loader, getattr(loader, "base_dataloader", loader)):
                each.collate_fn = opening
        return opening

    def resume(self, args: Any, state: Mapping[str, Any], trained_steps: int, loader: Any) -> None:
        """Restore what :meth:`state_dict` returned, after :meth:`begin` and before the first batch
        is read.

        Raises:
            TrainingError: if it belongs to other pairs.
            ValueError: if the trainer will skip other batches than were trained of the epoch.
        """
        skipped = 0
        if not args.ignore_data_skip:
            updates = trained_steps % _updates(args, loader)
            skipped = updates * args.gradient_accumulation_steps * process_count()
        if int(state["method"]) != zlib.crc32(self.method.name.encode()):
            raise ValueError(f"it is of another method than {self.method.name}")
        for number, part in enumerate(self._sets):
            own = state[str(number)]
            part.sampler.load_state_dict(own["sampler"])
            part.seen[part.rows.pairs.pair_doc[part.sampler.trained]] = True
            part.to_skip = part.sampler.trained_steps - int(own["epoch_start"]) if skipped else 0
        if (found := sum(part.to_skip for part in self._sets)) != skipped:
            raise ValueError(
                f"of this epoch {found} batches were trained, and the trainer skips {skipped}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps, for :meth:`resume`."""
        sets = {
            str(number): {"sampler": part.sampler.state_dict(), "epoch_start": part.epoch_start}
            for number, part in enumerate(self._sets)
        }
        return {"method": zlib.crc32(self.method.name.encode()), **sets}

    def _sampler(self, part: PrunedSet, draws: int, lag: int) -> PairSampler:
        rows, processes, scores = part.rows, process_count(), None
        if part.vectors is not None:
            watch = self._watches.get(rows.name) or next(iter(self._watches.values()))
            columns = rows.n_documents * (processes if watch.across else 1)
            scores, _ = pretrained_scores(
                rows.pairs,
                *part.vectors,
                watch.temperature,
                part.batch_size * columns,
                self._seed,
                None,
                DocumentPool.of(rows.data, "text"),
                self.method.cbs_pool_size(self.method_settings),
            )
        values = () if scores is None else (scores.similarity, scores.loss)
        number = zlib.crc32(rows.data.fingerprint.encode(), rows.pairs.fingerprint)
        for array in values:
            number = zlib.crc32(np.ascontiguousarray(array).tobytes(), number)
        refuse_differences("training pairs or scores", number)
        plan = Plan(self._seed, draws, part.batch_size)
        method = self.method(rows.pairs, plan, self.method_settings, scores)
        return PairSampler(method, rows.pairs, None, 0, part.batch_size, lag)

    def _watch(self, loss: Any, name: str) -> nn.Module:
        if not callable(loss):
            raise SettingError(f"loss: must be a loss or its class, got {shown(loss)}")
        made = loss if isinstance(loss, nn.Module) else loss(self.model)
        if any(watch.loss is made for watch in self._watches.values()):
            return made
        if all(module is not self.model for module in made.modules()):
            raise SettingError(
                f"loss: {type(made).__name__} was made with another model than PairPruning; use "
                "the same"
            )
        watch = LossWatch(
            self.model, made, self.temperature, self._take, self._observe, self._not_ranked
        )
        if self.method.weighs and not watch.weighs:
            raise SettingError(
                f"method={self.method.name}: weighs each pair's loss, and {type(made).__name__} as "
                "it is set cannot; use MultipleNegativesRankingLoss over cosines in one direction, "
                "or another method"
            )
        self._watches[name] = watch
        return made

    def _take(self, queries: dict[str, Tensor]) -> Tensor | None:
        """Take the batch that each process trains next, and return the weights of this one's, if
        any is not 1.

        Raises:
            TrainingError: if the loss got another batch.
        """
        if len(self._waiting) < process_count():
            raise TrainingError(f"PairPruning: the loss got a batch that was not drawn; {ADVICE}")
        self._taken = [self._waiting.popleft() for _ in range(process_count())]
        own = self._taken[process_index()]
        self._refuse_other(queries, own)
        weights = own.source.sampler.batch_at(own.step, 0).weights
        return None if bool((weights == 1).all()) else torch.from_numpy(weights)

    def _refuse_other(self, queries: dict[str, Tensor], given: Given) -> None:
        """Compare the number of queries, the first and the last with the batch that was drawn."""
        if "input_ids" not in queries:  # a model that reads no tokens
            return
        rows = given.source.rows
        drawn, found = rows.rows(given.source.sampler.pairs_of(given.step)), token_rows(queries)
        ends = self._collate([rows.dataset[row] for row in (drawn[0], drawn[-1])])
        start = f"{rows.columns[0]}_"
        first = {name.removeprefix(start): ends[name] for name in ends if name.startswith(start)}
        if len(found) != len(drawn) or token_rows(first) != [found[0], found[-1]]:
            raise TrainingError(
                f"PairPruning: the loss got other queries than were drawn in draw {given.step} of "
                f"{rows.data.source}; {ADVICE}"
            )

    def _not_ranked(self) -> Tensor:
        own = self._taken[process_index()]
        return torch.from_numpy(own.source.not_ranked(own.step))

    def _observe(self, similarity: Tensor, losses: Tensor, p: Tensor) -> None:
        """Pass on what every process saw of its batch."""
        ids = np.concatenate([source.sampler.pairs_of(step) for source, step in self._taken])
        seen = observed_everywhere(self._taken[0].step, ids, similarity, losses, p)
        for (part, step), values in zip(self._taken, np.split(seen, len(self._taken)), strict=True):
            part.train(step, part.sampler.pairs_of(step), *values.T)


def _updates(args: Any, loader: Any) -> int:
    """Optimizer steps per epoch."""
    return max(1, -(-len(loader) // int(args.gradient_accumulation_steps)))


class PruningCallback(TrainerCallback):  # type: ignore[misc]
    """Begins with the training, saves and restores the samplers with the trainer's checkpoints, and
    adds their schedule to the log. Pass it as ``callbacks=[pruning.callback]``.
    """

    def __init__(self, pruning: PairPruning) -> None:
        self.pruning = pruning

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make the samplers; where the trainer resumes, take up their state.

        Raises:
            SettingError: if the trainer reads its batches from another sampler or data set.
            RunFolderError: if the checkpoint holds none, or not that of this training.
        """
        loader = kwargs["train_dataloader"]
        self.pruning.begin(args, state.max_steps, loader)
        if state.global_step == 0:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        file = folder / STATE_FILE
        if not file.is_file():
            raise RunFolderError(
                f"{file}: does not exist, so the draws of this training cannot be resumed; "
                "checkpoints hold it where callbacks=[pruning.callback] is passed to the trainer, "
                "and are resumed from args.output_dir"
            )
        saved = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        try:
            if saved.log_history != state.log_history:
                raise ValueError("its weights are of another training than the one that is resumed")
            self.pruning.resume(args, read_state(file), state.global_step, loader)
        except (KeyError, ValueError, TrainingError) as error:
            raise RunFolderError(
                f"{file}: cannot be resumed ({error}); resume a checkpoint of args.output_dir, "
                "with the same data set, method and arguments"
            ) from None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the samplers' state beside the trainer's, in the main process; every process holds
        the same.
        """
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_state(folder / STATE_FILE, self.pruning.state_dict())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the losses as they were, and let go of them."""
        while self.pruning._watches:
            self.pruning._watches.popitem()[1].end()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add the schedule and the coverage to the log line of a training step."""
        if logs is not None and "loss" in logs:
            curves = self.pruning.curves()
            logs.update(curves)
            state.log_history[-1].update(curves)
