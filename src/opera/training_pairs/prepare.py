"""Load and check data, model and settings before a run writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opera.adapter.model import encode_all, save_adapted
from opera.config.automatic import AUTOMATIC, TRANSFORMERS, Situation, resolve
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.data import RetrievalData
from opera.retrieval.lora import merged
from opera.retrieval.models import model_kind, reads_vectors
from opera.training_pairs.prepare_data import RunData, prepare_data
from opera.training_pairs.prepare_model import RunModel, prepare_model

LITTLE_LOST = 0.05
"""The fraction of the training queries, or of the pairs, that dev may take without a second
training.
"""
MOST_CHEAP_STEPS = 200
"""A transformer does not train a second time if training has more steps."""


@dataclass(frozen=True)
class Prepared:
    """A loaded and checked run that has not written anything yet.

    Attributes:
        given: the user's settings.
        recipe: the settings with resolved automatic values.
        situation: the facts that automatic values depend on.
        data: the data in the versions that a run needs.
        model: the model to train, and the base model.
    """

    given: Recipe
    recipe: Recipe
    situation: Situation
    data: RunData
    model: RunModel

    @property
    def settings(self) -> TrainSettings:
        """The settings that do not belong to the method."""
        return self.recipe.train

    @property
    def processes(self) -> int:
        """The number of processes that train together."""
        return self.situation.processes

    @property
    def is_static(self) -> bool:
        """Whether a static model or an adapter trains, which takes seconds."""
        return self.situation.model not in TRANSFORMERS

    @property
    def refits(self) -> bool:
        """Whether the model trains a second time, with the dev queries back in train.

        By default only if dev took enough of train and another training is cheap.
        """
        settings, data = self.settings, self.data
        if not (settings.guard and data.dev_drawn):
            return False
        if settings.refit is not None:
            return settings.refit
        cheap = self.is_static or (settings.max_steps or 0) <= MOST_CHEAP_STEPS
        return cheap and data.lost_to_dev > LITTLE_LOST and not settings.evaluates_on_dev

    @property
    def identity(self) -> dict[str, Any]:
        """The values that must be equal to resume a run."""
        teacher = (
            self.data.with_splits.teacher if self.settings.teacher_scores is not None else None
        )
        return {
            **self.given.identity(),
            "processes": self.processes,
            "data_fingerprint": self.data.with_splits.fingerprint,
            "model_fingerprint": self.model.encoder.fingerprint,
            **({} if self.data.decided is None else {"decided_pairs": self.data.decided}),
            **({} if teacher is None else {"teacher_fingerprint": teacher.fingerprint}),
        }

    def encode(self) -> None:
        """Encode every text once for an adapter, which trains on the vectors."""
        text = self.settings.corpus_text
        vectors = encode_all(self.model.encoder, self.data.with_splits, text)
        self.model.trained[0].vectors = vectors

    def save_model(self, folder: Path, keeps_base: bool = False) -> None:
        """Write the final model with the settings of its evaluation.

        Args:
            folder: the folder to write.
            keeps_base: whether the final model is the base model. It keeps its folder's settings.
        """
        model, base, settings = self.model.trained, self.model.base, self.settings
        if keeps_base and not reads_vectors(self.model.encoder.model):
            model, base = self.model.base_as_saved.model, None
        lora, sizes = settings.lora_options, settings.matryoshka
        has_config = hasattr(model[0], "auto_model")
        if sizes is not None and has_config and not keeps_base:  # servers such as vLLM read it
            config = model[0].auto_model.config
            config.matryoshka_dimensions = [self.model.encoder.dimension, *sizes]
        with merged(model) if lora is not None and lora.merge else nullcontext():
            if base is None:
                model.save_pretrained(str(folder), create_model_card=False)
            else:
                save_adapted(folder, base, model)

    def resolved_as(self, recorded: Mapping[str, Any]) -> Prepared:
        """Return the run with the automatic values of an earlier start, maybe on another device."""
        values = {
            name: recorded[name] for name in AUTOMATIC if name != "precision" and name in recorded
        }
        recipe = self.recipe.model_copy(update={"train": self.settings.with_values(values)})
        return replace(self, recipe=recipe)


def load_and_check(
    data: RetrievalData,
    model_source: str,
    recipe: Recipe,
    processes: int = 1,
) -> Prepared:
    """Load the model, and check that data, model and settings fit together; write nothing.

    Args:
        data: the data set.
        model_source: a source for :func:`opera.retrieval.models.load_model`.
        recipe: all settings.
        processes: the number of processes that train together.

    Raises:
        InputError: for invalid input.
    """
    settings = recipe.train
    settings.explicit_batch_size(processes)  # raises errors early
    run_data = prepare_data(data, recipe)
    prompt = data.query_prompt
    if prompt is not None and settings.query_vectors is None and settings.query_prompt is None:
        checked = TrainSettings.parse({"query_prompt": prompt}).query_prompt
        settings = settings.with_values({"query_prompt": checked})
    model = prepare_model(model_source, settings, run_data.with_splits)
    sizes, dimension = settings.matryoshka or (), model.encoder.dimension
    if max(sizes, default=0) > dimension:
        raise SettingError(
            f"matryoshka={sizes[0]}: the embeddings have {dimension} dimensions; pass smaller "
            "numbers"
        )
    # Defaults depend on all of train, so the guard and decisions do not change them.
    undecided = recipe.model_copy(update={"train": settings.with_values({"decisions": None})})
    all_labels = prepare_data(data, undecided) if settings.decisions else run_data
    situation = Situation(
        queries=all_labels.before_dev.training_split().n_queries,
        model=model_kind(model.trained),
        device=model.encoder.device,
        processes=processes,
        lora=settings.lora is not None,
    )
    smaller = tuple(size for size in sizes if size < dimension) or None  # the full size is implied
    resolved = resolve(settings, situation).with_values({"matryoshka": smaller})
    used = recipe.model_copy(update={"train": resolved})
    return Prepared(recipe, used, situation, run_data, model)
