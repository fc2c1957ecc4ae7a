"""Train a reranker: sentence-transformers' trainer for cross-encoders, with batches of a method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback, ProgressCallback

from opera.config.recipe import Recipe
from opera.core.arrays import BoolArray
from opera.core.errors import ModelError
from opera.core.figures import PRIMARY
from opera.core.terminal import shown
from opera.data import RetrievalData
from opera.data.qrels import DocumentLists
from opera.data.texts import CorpusText
from opera.labels.estimate import FirstVisits, NoisyLabels
from opera.methods.denoise import Denoise
from opera.retrieval.device import pick_device, resolve_precision
from opera.retrieval.kinds import KINDS
from opera.retrieval.models import head_from, load_safely
from opera.retrieval.reranker import check_labels
from opera.training.callbacks import Progress
from opera.training.documents import DocumentPool
from opera.training.negatives import ListedNegatives
from opera.training.pair_pruning import PairPruning
from opera.training.script_rerankers import negatives_to_rank
from opera.training.trainer import check_weights

IN_BATCH = 4
"""Documents of other queries that the loss compares with a positive: sentence-transformers'
default."""


def open_base(spec: str, max_length: int | None, seed: int) -> tuple[CrossEncoder, bool]:
    """Load a cross-encoder, or an encoder with a new head, and say whether the head is new.

    Raises:
        ModelError: if the model cannot be loaded, or its files lack weights of the body.
    """
    heads = []

    def check(model: CrossEncoder, missing: list[str], title: str, folder: Path) -> None:
        body = f"{model[0].auto_model.base_model_prefix}."
        for name in missing:
            if name.startswith(body) and "pooler" not in name:
                raise ModelError(
                    f"{title}: its files lack the weights {shown(name)}; use a complete copy of "
                    "the model"
                )
        check_labels(model, title)
        heads.extend(missing)

    with head_from(seed):
        model = load_safely(KINDS["reranker"], spec, pick_device(), check, max_length=max_length)
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model, bool(heads)


def training_rows(
    data: RetrievalData, negatives: DocumentLists, count: int, corpus_text: CorpusText, seed: int
) -> Dataset:
    """Return a row per training pair: the query, its positive, and ``count`` of its negatives.

    A query without negatives gets random documents.
    """
    train = data.training_split()
    pairs, pool = train.pairs(), DocumentPool.of(data, corpus_text)
    listed = ListedNegatives(negatives, pool)
    doc_rows = listed.draw(pairs.pair_query.astype(np.int64), count, seed, 0)
    columns = {
        "query": data.queries.texts(train.query_rows[pairs.pair_query], "text"),
        "positive": data.corpus.texts(pairs.pair_doc, corpus_text),
    }
    for number in range(count):
        columns[f"negative_{number + 1}"] = data.corpus.texts(doc_rows[:, number], corpus_text)
    return Dataset.from_dict(columns)


class _Trainer(CrossEncoderTrainer):  # type: ignore[misc]
    """Without an automatic model card, which would query the hub."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Skip the callback."""


@dataclass(frozen=True)
class RerankerFit:
    """A finished training of a cross-encoder.

    Attributes:
        steps: the number of optimizer steps.
        noisy_labels: the estimate of wrong labels, by row; ``None`` if too few rows were ranked.
        visits: the first visits, by row.
        kept: bool ``[N]``, the rows that are not pruned.
    """

    steps: int
    noisy_labels: NoisyLabels | None
    visits: FirstVisits
    kept: BoolArray


def train_cross_encoder(model: CrossEncoder, rows: Dataset, recipe: Recipe) -> RerankerFit:
    """Train in place with InfoNCE over each positive, its negatives, and documents of other rows.

    Args:
        model: the cross-encoder.
        rows: as :func:`training_rows`.
        recipe: the settings; automatic ones must be resolved.

    Raises:
        TrainingError: if a weight is not finite.
    """
    with TemporaryDirectory() as folder:
        arguments = _arguments(model, recipe, folder)
        settings = recipe.method_settings.model_dump()
        pruning = PairPruning(model, rows, recipe.method, args=arguments, **settings)
        in_batch = _in_batch(recipe, arguments.per_device_train_batch_size, rows)
        loss = MultipleNegativesRankingLoss(model, num_negatives=in_batch)
        trainer = _Trainer(
            model,
            arguments,
            train_dataset=pruning.dataset,
            loss=pruning.watch(loss),
            callbacks=[pruning.callback, Progress(PRIMARY, shown=True)],
        )
        for unwanted in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(unwanted)
        trainer.train()
    check_weights(model, trainer.state.global_step)
    sampler, pairs = pruning.samplers[0], np.argsort(pruning.batches[0].data_set.row_of_pair)
    visits = sampler.all_visits()
    return RerankerFit(
        int(trainer.state.global_step),
        pruning.noisy_labels(),
        replace(visits, p=visits.p[pairs], step=visits.step[pairs], copies=None),
        sampler.kept[pairs],
    )


def _in_batch(recipe: Recipe, batch_size: int, rows: Dataset) -> int:
    """Return how many documents of other rows the loss compares with a positive.

    ``denoise`` ranks the positive among those of other rows, so it needs more.
    """
    if not issubclass(recipe.method_class, Denoise):
        return IN_BATCH
    return max(IN_BATCH, negatives_to_rank(len(rows.column_names) - 1, batch_size))


def _arguments(model: CrossEncoder, recipe: Recipe, folder: str) -> CrossEncoderTrainingArguments:
    """Convert OPERA's settings to the trainer's arguments."""
    settings, device = recipe.train, model.device.type
    precision = resolve_precision(settings.precision, device, is_transformer=True)
    return CrossEncoderTrainingArguments(
        output_dir=folder,
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_ratio,  # below 1 it is a fraction of the steps
        seed=settings.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=device == "cpu",
        report_to="none",
        save_strategy="no",
        logging_steps=settings.of_trainer("logging_steps"),
        dataloader_pin_memory=device == "cuda",
    )
