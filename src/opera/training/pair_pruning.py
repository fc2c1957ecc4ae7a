"""``opera.PairPruning``: the sampler of ``opera train`` in your sentence-transformers script."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.sampler import DefaultBatchSampler, MultiDatasetBatchSamplers
from torch import nn
from torch.utils.data import RandomSampler
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.core.arguments import flag, number, text, user_path, whole_number
from opera.core.arrays import distinct_numbers
from opera.core.errors import RunFolderError, SettingError, TrainingError, raise_first
from opera.core.files import check_output, is_page
from opera.core.processes import process_count, process_index
from opera.core.terminal import log, shown
from opera.labels.estimate import FirstVisits, NoisyLabels
from opera.labels.review import SUFFIXES, ReviewPage, chosen_items
from opera.methods import AUTO, PairScores, Plan, method_named
from opera.retrieval.device import refuse_differences
from opera.retrieval.kinds import Reranker, kind_of
from opera.retrieval.passages import DocumentVectors
from opera.run_folder.folder import SAMPLER_FILE
from opera.run_folder.reading import read_arrays
from opera.training.callbacks import SamplerCallback, nest
from opera.training.distinct_batches import DistinctSampler
from opera.training.documents import DocumentPool
from opera.training.loss_readers import LossReader, RerankerReader, reader_of
from opera.training.observed_loss import ObservedLoss
from opera.training.pair_review import AFTER_REVIEW, noisy_rows, review_items
from opera.training.pretrained_scores import pretrained_scores
from opera.training.sampler import Sampler
from opera.training.script_prompts import check_arguments, encode_texts, with_list_prompts
from opera.training.script_rerankers import base_scores, check_method, check_ranks, prepare
from opera.training.trainer_batches import ADVICE_ONCE, TrainerBatches
from opera.training.user_pairs import ONLY, read_all

DEFAULT_PREFETCH = 2
"""Batches that each worker of torch's data loader reads ahead."""


class PairPruning(SamplerCallback):
    """Lets one of OPERA's methods sample the batches of a trainer of sentence-transformers.

        pruning = opera.PairPruning(model, dataset, args=args)
        trainer = SentenceTransformerTrainer(
            model,
            args,
            train_dataset=pruning.dataset,
            loss=pruning.watch(loss),
            callbacks=[pruning.callback],
        )

    A row of the data set is a pair: the first text column is the query, the second its positive
    document. Rows with the same query belong together. Rows with label 0 are skipped, unless all
    labels are 0 or some have fractions: fractions are scores for the loss. With
    ``BinaryCrossEntropyLoss``, rows with label 0 train in the batches of their queries.

    A batch of the trainer is one step of the method. The label column of ``pruning.dataset`` holds
    pair ids. See docs/coming-from-sentence-transformers.md.

    Methods observe a score of each pair, its InfoNCE loss, and the rank of its document in the
    batch. The score is the cosine of a dense model, the product (or cosine, as the loss compares)
    of a sparse model, MaxSim (or its mean) of a multi-vector model, or the logit of a
    cross-encoder. For multi-vector models and cross-encoders, ``infobatch`` weighs gradients, and
    the trainer logs the loss without weights.

    Args:
        model: a SentenceTransformer, SparseEncoder, MultiVectorEncoder or CrossEncoder, before
            training. If the method needs the base model's scores, :meth:`watch` encodes the data
            set. A cross-encoder scores each pair with its document and with as many random
            documents as the loss's ``num_negatives``.
        dataset: a ``datasets.Dataset``, or several by name. A list of positives becomes a row for
            each. A list of negatives becomes columns, as many as the shortest list has texts.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``,
            ``denoise``, one that you registered, or ``auto`` for
            :data:`opera.methods.DEFAULT_METHOD`.
        args: the trainer's arguments. PairPruning encodes the data set with their prompts, and sets
            their ``batch_sampler``.
        temperature: divides the scores in the losses that the method observes; by default the
            temperature of the loss.
        settings: settings of the method, such as ``alpha_end=3`` or ``k=0.5``.

    Attributes:
        dataset: the rows with their pair ids, for ``train_dataset``.
        sampler: for ``args.batch_sampler``.
        callback: for ``callbacks``.

    Raises:
        SettingError: for an unknown method or setting, or if ``args`` has another batch sampler.
        DataError: if the data set has no pairs of texts.
        ModelError: if ``model`` is a model of another class.

    Examples:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer
        >>> texts = [f"text {number}" for number in range(8)]
        >>> dataset = Dataset.from_dict({"anchor": texts, "positive": texts[::-1]})
        >>> pruning = opera.PairPruning(SentenceTransformer("all-MiniLM-L6-v2"), dataset, "ft")
        >>> pruning.dataset.num_rows
        8
    """

    def __init__(
        self,
        model: BaseModel,
        dataset: Any,
        method: str = AUTO,
        *,
        args: Any = None,
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.kind = kind_of(model)
        if temperature is not None:
            number(temperature, "temperature", 1e-6, 1e6)
        if args is not None:
            check_arguments(args, self.kind)
        self.model, self.method = model, method_named(text(method, "method"))
        self.method_settings = self.method.settings_class.parse(settings)
        self.temperature, self._prompts = temperature, getattr(args, "prompts", None) or None
        self.sampler = self.make_batch_sampler  # by the name of the trainer's argument
        self.callback, self._seed = self, 0
        self._losses: dict[str, ObservedLoss] = {}
        self._batch_size: int | None = getattr(args, "per_device_train_batch_size", None)
        self._base: dict[str, Any] = {}  # the base model's vectors or scores, by data set
        self.batches = [TrainerBatches(data_set) for data_set in read_all(dataset)]
        data_sets = [batches.data_set for batches in self.batches]
        self.names = [data_set.name for data_set in data_sets]
        for data_set in data_sets:
            pairs = data_set.pairs
            self.method.check(self.method_settings, pairs.n_queries, pairs.n_pairs)
            if self.kind is Reranker:
                check_method(self.method, self.method_settings)
                continue  # the loss decides about rows with label 0
            data_set.skip_label_0()
        by_name = {data_set.name: data_set.dataset for data_set in data_sets}
        self.dataset = by_name if isinstance(dataset, Mapping) else by_name[ONLY]
        if args is not None:
            args.batch_sampler = self.sampler

    def watch(self, loss: Any) -> Any:
        """Wrap a loss for the trainer, so that it reports what the method observes.

        Args:
            loss: a loss over (anchor, positive, negatives), a function that returns a loss for the
                model, or a dictionary of losses by data set.

        Raises:
            SettingError: if ``loss`` is not a loss, if OPERA cannot read it, if its temperature is
                unknown, if the method weighs or ranks pairs and the loss cannot, or if scores are
                needed and OPERA does not know the loss's ``similarity_fct``.
        """
        if isinstance(loss, Mapping):
            return {name: self._watch(named_loss, name) for name, named_loss in loss.items()}
        return self._watch(loss, ONLY)

    def noisy_labels(self, name: str = ONLY) -> NoisyLabels | None:
        """Estimate which rows have wrong labels, with any method (docs/noisy-labels.md).

        Args:
            name: of the data set, if there are several.

        Returns:
            The noise rate with its interval, ``probability_wrong`` of each row of the data set,
            float32, NaN for rows that were not trained, and the ``suspicious`` rows, int64, worst
            first; ``None`` while fewer than 300 rows were trained.

        Raises:
            SettingError: before training, or for an unknown name.
        """
        batches = self._trained_batches(name, "noisy_labels")
        return noisy_rows(batches.data_set, batches.pair_sampler)

    def review(
        self, path: str | Path, *, name: str = ONLY, items: int = 200, overwrite: bool = False
    ) -> Path:
        """Write a page to review suspicious rows and a random sample of the other rows
        (docs/noisy-labels.md).

        Args:
            path: the page, or a table if it ends in ``.csv``. In the decisions, ``query_id`` and
                ``doc_id`` are both the row of ``pruning.dataset``. An earlier page is replaced.
            name: of the data set, if there are several.
            items: how many rows at most.
            overwrite: whether another file at ``path`` may be replaced.

        Returns:
            The path of the file.

        Raises:
            SettingError: before training, for an unknown name or suffix, or if the file exists and
                is not an earlier page.
        """
        file = user_path(path, "path")
        check_output(
            file,
            "path",
            SUFFIXES,
            overwrite=flag(overwrite, "overwrite"),
            ours=lambda file: is_page(file, "OPERA review"),
        )
        batches = self._trained_batches(name, "review")
        contents = review_items(batches.data_set, batches.pair_sampler, self._seed)
        chosen = chosen_items(contents, {}, whole_number(items, "items", 1))
        ReviewPage("Rows of the data set", "train", contents, chosen, AFTER_REVIEW).write(file)
        return file

    def _trained_batches(self, name: str, function: str) -> TrainerBatches:
        raise_first(
            SettingError,
            (name not in self.names, f"name must be one of {self.names}, got {shown(name)}"),
            (not self.samplers, "nothing is trained yet; call it after trainer.train()"),
            subject=f"{function}: ",
        )
        return self.batches[self.names.index(name)]

    def make_batch_sampler(self, dataset: Any, **how: Any) -> Any:
        """Return OPERA's batch sampler for ``pruning.dataset``, and torch's for other data sets.

        Raises:
            TrainingError: if a training or an evaluation has already read the data set.
        """
        batches = next((one for one in self.batches if one.data_set.dataset is dataset), None)
        if batches is None:
            return DefaultBatchSampler(
                RandomSampler(dataset, generator=how.get("generator")), **how
            )
        if batches.length:
            raise TrainingError(
                f"PairPruning: {batches.data_set.data.title} is read again, by a second training "
                f"or an evaluation; {ADVICE_ONCE}"
            )
        size = how["batch_size"]
        self._seed, of_all = how.get("seed") or 0, size * process_count()
        steps = batches.data_set.pairs.n_pairs / of_all
        batches.batch_size = size
        batches.length = (int(steps) if how["drop_last"] else math.ceil(steps)) * process_count()
        return batches

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Create the samplers; if the trainer resumes, load their state from its checkpoint.

        The lag is how far the trainer reads ahead. While the first batch of an optimizer step
        trains, accelerate has read one batch of the next step, and the loader's workers hold more.
        Each batch is one draw in every process.

        Raises:
            SettingError: for arguments that do not fit, such as new prompts after the scoring, or a
                batch that would hold a query twice.
            RunFolderError: if the checkpoint lacks the sampler's state, or belongs to another
                training.
        """
        self._check_script(args)
        loader = kwargs["train_dataloader"]
        collator = loader.collate_fn
        for batches in self.batches:
            collator.prompts = with_list_prompts(collator.prompts, batches.data_set.lists)
        processes, accumulation = process_count(), args.gradient_accumulation_steps
        prefetched = args.dataloader_prefetch_factor or DEFAULT_PREFETCH
        lag = processes * (accumulation + 1 + args.dataloader_num_workers * prefetched)
        per_epoch, updates = len(loader), max(1, -(-len(loader) // accumulation))
        epochs, left = divmod(state.max_steps, updates)
        read = (epochs * per_epoch + min(left * accumulation, per_epoch)) * processes
        in_turns = args.multi_dataset_batch_sampler == MultiDatasetBatchSamplers.ROUND_ROBIN
        lengths = [1 if in_turns else batches.length for batches in self.batches]
        for batches, length in zip(self.batches, lengths, strict=True):
            draws = max(1, math.ceil(read * length / sum(lengths)))
            batches.begin(self._sampler(batches, draws, lag))
        self.samplers = [batches.pair_sampler for batches in self.batches]
        if state.global_step:
            skips = 0 if args.ignore_data_skip else state.global_step % updates
            self._resume(args, state, skips * accumulation * processes)

    def _check_script(self, args: Any) -> None:
        """Check that the script uses what PairPruning gave it."""
        check_arguments(args, self.kind)
        other_prompts = self._prompts != (args.prompts or None)
        raise_first(
            SettingError,
            (
                other_prompts and bool(self._base),
                f"args.prompts={shown(args.prompts)}: the pairs were scored with "
                f"{shown(self._prompts)}; pass the trainer's arguments to PairPruning (args=args)",
            ),
            (
                not self._losses,
                "PairPruning: no loss is watched; pass loss=pruning.watch(loss) to the trainer",
            ),
            (
                not all(batches.length for batches in self.batches),
                "PairPruning: the trainer does not train on pruning.dataset; pass "
                "train_dataset=pruning.dataset to the trainer, unchanged, and set "
                "args.batch_sampler = pruning.sampler",
            ),
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report how many rows had a known positive among their negatives. The losses accept rows
        without pair ids again."""
        for loss in self._losses.values():
            loss.ended, advice = True, loss.reader.advice
            if any(loss.shares_with_positives) and process_index() == 0:
                log.warning(
                    "note: for %.1f%% of the trained rows, other documents of the batch were known "
                    "positives of the query, and %s may take them for negatives; lower "
                    "per_device_train_batch_size%s",
                    100 * np.mean(loss.shares_with_positives),
                    type(loss.loss).__name__,
                    f", or use {advice}, from which OPERA excludes them" if advice else "",
                )

    def __reduce__(self) -> tuple[Any, ...]:
        # Trainers pickle and copy their arguments, which hold the sampler; exclude the model.
        return object.__new__, (PairPruning,)

    def __deepcopy__(self, memo: Any) -> PairPruning:
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps."""
        starts = {str(number): batches.epoch_start for number, batches in enumerate(self.batches)}
        method = zlib.crc32(self.method.name.encode())
        return {**super().state_dict(), "epoch_starts": starts, "method": method}

    def _resume(self, args: Any, state: Any, skipped: int) -> None:
        """Load the sampler's state; the trainer skips ``skipped`` batches of the epoch."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        file = folder / SAMPLER_FILE
        if not file.is_file():
            raise RunFolderError(
                f"{file}: does not exist, so PairPruning cannot resume; pass "
                "callbacks=[pruning.callback] to the trainer, which writes the file, and resume "
                "from a checkpoint in args.output_dir"
            )
        saved = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        try:
            if saved.log_history != state.log_history:
                raise ValueError("its weights are from another training")
            sampler_state = nest(read_arrays(file))
            if int(sampler_state["method"]) != zlib.crc32(self.method.name.encode()):
                raise ValueError(f"its method is not {self.method.name}")
            self.load_state_dict(sampler_state)
            trained = [
                batches.resume(int(sampler_state["epoch_starts"][str(number)]), skipped > 0)
                for number, batches in enumerate(self.batches)
            ]
            if sum(trained) != skipped:
                raise ValueError(
                    f"batches of this epoch: {sum(trained)} trained, but {skipped} skipped"
                )
        except (KeyError, ValueError, TrainingError) as error:
            raise RunFolderError(
                f"{file}: cannot be resumed ({error}); resume from a checkpoint in "
                "args.output_dir, with the same data set, method and arguments"
            ) from None

    def _sampler(self, batches: TrainerBatches, draws: int, lag: int) -> Sampler:
        data_set, batch_size, scores = batches.data_set, batches.batch_size, self._scores(batches)
        pairs, copies, documents = data_set.pairs, data_set.copies, data_set.documents
        values = () if scores is None else (scores.similarity, scores.loss)
        arrays = (pairs.pair_query, pairs.pair_doc, *values)
        refuse_differences("training pairs or scores", arrays)
        plan = Plan(self._seed, draws, batch_size)
        method = self.method(pairs, plan, self.method_settings, scores)
        repeated = len(distinct_numbers(copies)) < pairs.n_pairs
        visits = FirstVisits.none(pairs.n_pairs, copies=copies if repeated else None)
        reader = self._loss_of(data_set.name).reader
        check_ranks(self.method, data_set, reader, batch_size)
        if reader.masks:
            documents = documents[:, :0]
        distinct = DistinctSampler(method, documents, data_set.known)
        return Sampler([distinct], pairs, plan, batch_size, lag=lag, visits=visits)

    def _loss_of(self, name: str) -> ObservedLoss:
        return self._losses.get(name) or next(iter(self._losses.values()))

    def _scores(self, batches: TrainerBatches) -> PairScores | None:
        """Return the base model's scores, from batches like those of the loss."""
        data_set, base = batches.data_set, self._base.get(batches.data_set.name)
        if base is None or isinstance(base, PairScores):
            return base
        loss = self._loss_of(data_set.name)
        processes = process_count() if loss.across else 1
        return pretrained_scores(
            data_set.pairs,
            base["query"],
            DocumentVectors(base["document"]),
            loss.temperature,
            batches.batch_size * data_set.documents.shape[1] * processes,
            self._seed,
            data_set.known if loss.masks else None,
            DocumentPool.of(data_set.data, "text"),
            self.method.cbs_pool_size(self.method_settings),
        )

    def _watch(self, loss: Any, name: str) -> nn.Module:
        if not callable(loss):
            raise SettingError(f"loss: must be a loss or its class, got {shown(loss)}")
        module = loss if isinstance(loss, nn.Module) else loss(self.model)
        module = module.loss if isinstance(module, ObservedLoss) else module
        if all(submodule is not self.model for submodule in module.modules()):
            raise SettingError(
                f"loss: {type(module).__name__} has another model than PairPruning; use the same "
                "model for both"
            )
        reader = reader_of(self.kind, module, self.temperature)
        if self.method.weighs and not reader.weighs:
            raise SettingError(
                f"method={self.method.name}: the method weighs pairs, which "
                f"{type(module).__name__} with these arguments cannot; use "
                f"{reader.advice}, or another method"
            )
        self._prepare(reader, name)
        self._losses[name] = ObservedLoss(self.batches, self.model, reader)
        return self._losses[name]

    def _prepare(self, reader: LossReader, name: str) -> None:
        """Score the data sets of a loss by the base model, as the loss compares; check a
        cross-encoder's loss."""
        if (watched := self._losses.get(name)) and watched.loss is reader.loss:
            return
        for data_set in (batches.data_set for batches in self.batches):
            if name not in (ONLY, data_set.name):
                continue
            if isinstance(reader, RerankerReader):
                prepare(self.method, data_set, reader, self._batch_size)
            if self.method.needs_scores(self.method_settings):
                of_data_set = self.model, data_set, self._prompts
                self._base[data_set.name] = (
                    base_scores(*of_data_set, reader)
                    if isinstance(reader, RerankerReader)
                    else encode_texts(*of_data_set, reader.similarity_name())
                )
