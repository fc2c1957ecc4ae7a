"""Load and check everything that a run needs, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opera.adapter.model import encode_all, save_adapted, set_vectors
from opera.config.automatic import AUTOMATIC, TRANSFORMERS, Situation, resolve
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.data import RetrievalData, TeacherScores
from opera.retrieval.lora import merged
from opera.retrieval.models import model_kind, reads_vectors
from opera.training_set.prepare_data import RunData, prepare_data
from opera.training_set.prepare_model import RunModel, prepare_model

LITTLE_LOST = 0.05
"""Share of the training queries, or of the pairs, that dev may take without a second training that
puts them back.
"""
ROUNDING = 1e-3
"""How far above 1 a cosine may come out."""
MOST_CHEAP_STEPS = 200
"""A transformer's training of more steps is not repeated."""


@dataclass(frozen=True)
class Prepared:
    """A run that is loaded and checked, with nothing written yet.

    Attributes:
        given: all settings as the user gave them.
        recipe: the same with automatic values resolved.
        situation: what these depend on.
        data: the data in the versions that a run needs.
        model: the model that trains, and the untrained one.
    """

    given: Recipe
    recipe: Recipe
    situation: Situation
    data: RunData
    model: RunModel

    @property
    def settings(self) -> TrainSettings:
        """The settings that are not the method's."""
        return self.recipe.train

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return self.situation.processes

    @property
    def is_static(self) -> bool:
        """Whether a table of token embeddings, or an adapter, trains: it takes seconds."""
        return self.situation.model not in TRANSFORMERS

    @property
    def refits(self) -> bool:
        """Whether the model is trained again with the drawn dev split in train.

        Unless the user says so, only if dev took enough of train and another training is cheap.
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
        """What must be equal for a run to be resumed."""
        teacher = self.data.drawn.teacher if self.settings.teacher_scores is not None else None
        return {
            **self.given.identity(),
            "processes": self.processes,
            "data_fingerprint": self.data.drawn.fingerprint,
            "model_fingerprint": self.model.encoder.fingerprint,
            **({} if self.data.decided is None else {"decided_pairs": self.data.decided}),
            **({} if teacher is None else {"teacher_fingerprint": teacher.fingerprint}),
        }

    def encode(self) -> None:
        """Encode every text once, where an adapter trains on the vectors."""
        if self.model.base is not None:
            text = self.settings.corpus_text
            vectors = encode_all(self.model.encoder, self.data.drawn, text)
            set_vectors(self.model.trained, vectors)

    def save_model(self, folder: Path, keeps_base: bool = False) -> None:
        """Write the final model with the settings that it was measured with.

        Args:
            folder: where to write it.
            keeps_base: whether it is the base model, which keeps its folder's settings.
        """
        model, base, settings = self.model.trained, self.model.base, self.settings
        if keeps_base and not reads_vectors(self.model.encoder.model):
            model, base = self.model.served.model, None
        lora, sizes = settings.lora_options, settings.matryoshka
        if sizes is not None and hasattr(model[0], "auto_model"):  # servers such as vLLM look there
            config = model[0].auto_model.config
            config.matryoshka_dimensions = [self.model.encoder.dimension, *sizes]
        with merged(model) if lora is not None and lora.merge else nullcontext():
            if base is None:
                model.save_pretrained(str(folder), create_model_card=False)
            else:
                save_adapted(folder, base, model)

    def resolved_as(self, recorded: Mapping[str, Any]) -> Prepared:
        """The same run with the automatic values of an earlier start, perhaps on another device."""
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
    """Load the model and check data, model and settings against each other; writes nothing.

    Args:
        data: the data set.
        model_source: what :func:`opera.retrieval.models.load_model` takes.
        recipe: all settings.
        processes: how many processes train together.

    Raises:
        InputError: for invalid input.
    """
    settings = recipe.train
    settings.explicit_batch_size(processes)  # to refuse early
    run_data = prepare_data(data, recipe)
    brought = data.query_prompt
    if brought is not None and settings.query_vectors is None and settings.query_prompt is None:
        checked = TrainSettings.parse({"query_prompt": brought}).query_prompt
        settings = settings.with_values({"query_prompt": checked})
    model = prepare_model(model_source, settings, run_data.drawn)
    sizes, own_size = settings.matryoshka or (), model.encoder.dimension
    if max(sizes, default=0) > own_size:
        raise SettingError(
            f"matryoshka={sizes[0]}: the embeddings have {own_size} dimensions; give smaller "
            "numbers"
        )
    # with all of train, so that a run has the same defaults with the guard and without it, and with
    # decisions about labels and without them
    undecided = recipe.model_copy(update={"train": settings.with_values({"decisions": None})})
    all_labels = prepare_data(data, undecided) if settings.decisions else run_data
    situation = Situation(
        queries=all_labels.before_dev.training_split().n_queries,
        model=model_kind(model.trained),
        device=model.encoder.device,
        processes=processes,
        lora=settings.lora is not None,
    )
    smaller = tuple(size for size in sizes if size < own_size) or None  # its own always counts
    resolved = resolve(settings, situation).with_values({"matryoshka": smaller})
    used = recipe.model_copy(update={"train": resolved})
    return Prepared(recipe, used, situation, run_data, model)


def is_cosines(teacher: TeacherScores) -> bool:
    """Whether all scores are from -1 to 1, as cosines are."""
    return bool(np.abs(teacher.scores).max(initial=0) <= 1 + ROUNDING)
