"""Everything a run needs, checked and loaded before anything is written."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

from opera.config.recipe import Recipe, TrainSettings
from opera.core.errors import SettingError
from opera.data import Qrels, RetrievalData
from opera.data.splits import copy_splits, draw_missing_splits
from opera.methods import METHODS, Method
from opera.retrieval.device import describe_device, pick_device
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import check_measures
from opera.retrieval.models import is_static, load_model, parameter_count, set_dropout_and_attention, set_lengths
from opera.training.distributed import world_size
from opera.training.trainer import training_arguments
from opera.training_set.negatives import check_range
from opera.training_set.noise import NoisyTraining, graded_down

VERSIONED = (
    "opera-retrieval",
    "torch",
    "sentence-transformers",
    "transformers",
    "accelerate",
    "ir-measures",
    "numpy",
)


@dataclass(frozen=True)
class Prepared:
    """Everything checked and loaded, nothing yet written.

    ``training`` holds the true pairs; ``graded_down`` those with the ones that ``noise=grade`` lets in.
    """

    recipe: Recipe
    data: RetrievalData
    training: Qrels
    graded_down: NoisyTraining | None
    model: SentenceTransformer
    encoder: Encoder
    method: type[Method[Any]]
    negatives: str
    arguments: SentenceTransformerTrainingArguments
    about: dict[str, Any]

    @property
    def settings(self) -> TrainSettings:
        """The settings that are not the method's."""
        return self.recipe.train


def prepare(data: RetrievalData, model_spec: str, recipe: Recipe, chosen: set[str], checkpoints: Path) -> Prepared:
    """Load and check everything that a run needs; writes nothing.

    Args:
        data: the data set.
        model_spec: what :func:`load_model` takes.
        recipe: the run's settings.
        chosen: names of the settings that the user gave.
        checkpoints: where the trainer will save.

    Raises:
        InputError: for anything that cannot be used.
    """
    settings = recipe.train
    if settings.needs_dev:
        check_measures([settings.metric_for_best_model])
    original = data
    data = data.with_relevant_grade(settings.relevant_grade)
    data.training_split()
    data = draw_missing_splits(
        data,
        seed=settings.seed,
        test_fraction=settings.test_fraction,
        dev_fraction=settings.dev_fraction if settings.needs_dev else None,
    )
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        data.judged_qrels(split)
    data.corpus.check_not_empty(settings.corpus_text, "document")
    training = data.training_split()
    method = METHODS[recipe.method]
    method.check(recipe.method_settings, training.n_queries, len(training.doc_rows))
    kind = _negatives_kind(settings, data)
    if kind == "hard":
        check_range(settings.mining_range, len(data.corpus))
    judged_down = _graded_down(original, data, settings)
    if settings.noise == "hard":
        check_range(settings.noise_ranks, len(data.corpus), "noise_range")
    device = pick_device()
    model = load_model(model_spec, device)
    lengths = set_lengths(model, settings.max_query_length, settings.max_passage_length, chosen)
    set_dropout_and_attention(model, settings.dropout, settings.attn_implementation)
    encoder = Encoder(model, settings.precision, settings.encode_batch_size)
    learning_rate = settings.learning_rate or default_learning_rate(model)
    resolved = {"learning_rate": learning_rate, "precision": encoder.precision, "negatives": kind, **lengths}
    about = {
        "identity": {
            **recipe.flat(),
            "processes": world_size(),
            "data_fingerprint": data.fingerprint,
            "model_fingerprint": encoder.fingerprint,
        },
        "data": {
            "source": data.source,
            "fingerprint": data.fingerprint,
            "counts": data.counts(),
            "notes": list(data.notes),
        },
        "model": {
            "source": model_spec,
            "fingerprint": encoder.fingerprint,
            "parameters": parameter_count(model),
        },
        "device": describe_device(device),
        "processes": world_size(),
        "seed": settings.seed,
        "settings": {**recipe.flat(), **resolved},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONED}},
    }
    arguments = training_arguments(settings, learning_rate, encoder.precision, model, checkpoints)
    return Prepared(
        recipe=recipe,
        data=data,
        training=training,
        graded_down=judged_down,
        model=model,
        encoder=encoder,
        method=method,
        negatives=kind,
        arguments=arguments,
        about=about,
    )


def default_learning_rate(model: SentenceTransformer) -> float:
    """The ``auto`` learning rate: static models take far larger steps than transformers, small ones larger than big."""
    if is_static(model):
        return 1e-2
    return 1e-4 if parameter_count(model) < 50_000_000 else 2e-5


def _negatives_kind(settings: TrainSettings, data: RetrievalData) -> str:
    if settings.negatives == "given" and data.given_negatives is None:
        raise SettingError(f"negatives=given: {data.source} holds no negatives; use negatives=random or negatives=hard")
    return settings.negatives or ("given" if data.given_negatives is not None else "random")


def _graded_down(original: RetrievalData, data: RetrievalData, settings: TrainSettings) -> NoisyTraining | None:
    """Make the pairs of ``noise=grade``, from the original scores of the queries that are left in train."""
    if settings.noise_grade is None:
        return None
    left = copy_splits(original, source=data).split("train")
    noisy = graded_down(data.training_split(), left, settings.relevant_grade, settings.noise_grade)
    if noisy.count == 0:
        raise SettingError(
            f"noise_grade={settings.noise_grade}: {data.source} has no train judgement with a score from "
            f"{settings.noise_grade} to {settings.relevant_grade - 1}; give another noise_grade or relevant_grade"
        )
    return noisy
