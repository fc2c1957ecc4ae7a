"""Load and check everything that a run needs, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from opera.adapter.model import check_saved, encode_all, save_adapted, set_vectors
from opera.config.automatic import AUTOMATIC, TRANSFORMERS, Situation, resolve
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.data import Qrels, RetrievalData, TeacherScores
from opera.data.combined import for_each
from opera.data.novelty import recurring
from opera.data.splits import Future
from opera.retrieval.encoder import Encoder
from opera.retrieval.lora import lora_parameters, merged
from opera.retrieval.models import holding_lengths, model_kind, parameter_count
from opera.training_set.prepare_data import prepare_data
from opera.training_set.prepare_model import (
    add_lora_to,
    check_gradient_cache,
    checked_sizes,
    load_models,
    read_vectors,
)

LITTLE_LOST = 0.05
"""Share of the training queries, or of the pairs, that dev may take without a second training that
puts them back.
"""
MOST_SHARED = 0.3
"""How much larger the share of pairs with a shared document may be among those that dev brings back
than among the others; in the worlds of docs/when-fine-tuning-hurts.md, where a second training
helps, it is up to .29 larger."""
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
        original: the data with its original grades and splits.
        data: the data that trains: grades below ``relevant_grade`` are 0, and missing splits are
            drawn.
        whole: the same with everything in train that was drawn or held out for dev; ``data`` itself
            if dev was not drawn.
        future: what tomorrow's queries are taken to ask about; ``None`` for a run that needs no dev
            split.
        model: the model that trains.
        base: the untrained model under an adapter, which does not train; ``None`` without an
            adapter.
        model_source: what the user called it.
        encoder: the model with its device and precision.
        negatives: the kind of explicit negatives.
        lengths: ``max_query_length`` and ``max_passage_length`` in force; ``None`` for a model that
            reads whole texts.
        own_lengths: those that the pretrained model's folder holds, likewise.
        processes: how many processes train together.
    """

    given: Recipe
    recipe: Recipe
    situation: Situation
    original: RetrievalData
    data: RetrievalData
    whole: RetrievalData
    future: Future | None
    model: SentenceTransformer
    model_source: str
    encoder: Encoder
    negatives: str
    lengths: dict[str, int | None]
    own_lengths: dict[str, int | None]
    processes: int
    base: SentenceTransformer | None = None

    @property
    def settings(self) -> TrainSettings:
        """The settings that are not the method's."""
        return self.recipe.train

    @property
    def is_static(self) -> bool:
        """Whether what trains is a table of token embeddings, or an adapter: a training takes
        seconds.
        """
        return self.situation.model not in TRANSFORMERS

    @property
    def again(self) -> RetrievalData:
        """The data of a second training: the drawn dev split is back in train.

        Pairs of other queries that left train because their documents are to be new stay out: the
            training that chose the share had nothing like them (issue 23).
        """
        return for_each(_with_held_out, self.whole, self.data)

    @property
    def refits(self) -> bool:
        """Whether the model is trained again with the drawn dev split in train."""
        wanted, drawn = self.settings.refit, self.whole is not self.data
        return self.settings.guard and drawn and (self._refit_pays if wanted is None else wanted)

    @property
    def _refit_pays(self) -> bool:
        """Whether dev took enough of train to be worth another training, which is cheap and like
        the first.
        """
        left, whole = self.data.training_split(), self.whole.training_split()
        lost = 1 - min(left.n_queries / whole.n_queries, len(left.doc_rows) / len(whole.doc_rows))
        cheap = self.is_static or (self.settings.max_steps or 0) <= MOST_CHEAP_STEPS
        return (
            cheap
            and lost > LITTLE_LOST
            and not self.settings.evaluates_on_dev
            and self._comes_back_alike
        )

    @property
    def _comes_back_alike(self) -> bool:
        """Whether what comes back to train with dev is like what was there (issue 23).

        It is not if documents had to leave train so that dev has new ones, nor if more of the pairs
        that come back name a document that another query names too: such documents are found first
        for every query, and neither the first training nor dev, which the second has seen, shows
        it.
        """
        if _count(self.data.held_out) != _count(self.whole.held_out):
            return False
        again = self.again.training_split().relevant()
        back = np.isin(again.query_rows, self.data.split("dev").query_rows)[again.query_index]
        shared = recurring(again)
        return bool(
            back.any()
            and not back.all()
            and shared[back].mean() - shared[~back].mean() <= MOST_SHARED
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal for a run to be resumed."""
        return {
            **self.given.identity(),
            "processes": self.processes,
            "data_fingerprint": self.data.fingerprint,
            "model_fingerprint": self.encoder.fingerprint,
            **self._others_fingerprints,
        }

    @property
    def _others_fingerprints(self) -> dict[str, str]:
        """Those of what else decides the training set, where there is any."""
        teacher = self.data.teacher
        from_file = self.settings.teacher_scores is not None
        return {
            **(
                {"teacher_fingerprint": teacher.fingerprint}
                if from_file and teacher is not None
                else {}
            ),
        }

    @property
    def n_parameters(self) -> int:
        """Size of the model, with an adapter of the pretrained one."""
        own = parameter_count(self.model) - lora_parameters(self.model)
        return own if self.base is None else parameter_count(self.base) or own

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts in force, by the names of their settings; empty without a model."""
        if self.settings.query_vectors is not None:
            return {}
        return {f"{role}_prompt": prompt for role, prompt in self.encoder.prompts.items()}

    def encode(self) -> None:
        """Encode every text once, where an adapter trains on the vectors."""
        if self.base is not None:
            set_vectors(self.model, encode_all(self.encoder, self.data, self.settings.corpus_text))

    def save_model(self, folder: Path) -> None:
        """Write the trained model, as it is handed over: with its own lengths."""
        lora, sizes = self.settings.lora_options, self.settings.matryoshka
        if sizes is not None and hasattr(
            self.model[0], "auto_model"
        ):  # where servers such as vLLM look
            self.model[0].auto_model.config.matryoshka_dimensions = [self.encoder.dimension, *sizes]
        with (
            holding_lengths(
                self.base or self.model,
                self.own_lengths,
            ),
            merged(self.model) if lora is not None and lora.merge else nullcontext(),
        ):
            if self.base is None:
                self.model.save_pretrained(str(folder), create_model_card=False)
            else:
                save_adapted(folder, self.base, self.model)
        if self.base is not None:
            check_saved(
                folder, self.encoder, self.model, self.data, self.settings.corpus_text, self.lengths
            )

    def resolved_as(self, recorded: Mapping[str, Any]) -> Prepared:
        """The same run with the automatic values of an earlier start, perhaps on another device."""
        values = {
            name: recorded[name] for name in AUTOMATIC if name != "precision" and name in recorded
        }
        recipe = self.recipe.model_copy(update={"train": self.settings.with_values(values)})
        return replace(self, recipe=recipe)


def prepare(data: RetrievalData, model_source: str, recipe: Recipe, processes: int = 1) -> Prepared:
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
    settings.given_per_device(processes)  # to refuse early
    prepared_data, whole, future, kind = prepare_data(data, recipe)
    with_vectors = settings.query_vectors is not None
    if not with_vectors:
        settings = _with_prompt_of(data, settings)
    models = (
        read_vectors(prepared_data, settings)
        if with_vectors
        else load_models(model_source, settings)
    )
    model = models["model"]
    everything = whole.training_split()  # a run has the same defaults with the guard and without it
    situation = Situation(
        queries=everything.n_queries,
        model=model_kind(model),
        device=models["encoder"].device,
        processes=processes,
        lora=settings.lora is not None,
    )
    sizes = checked_sizes(settings.matryoshka, models["encoder"].dimension)
    check_gradient_cache(settings.gradient_cache, model)
    add_lora_to(model, models["encoder"], settings, model_source)
    return Prepared(
        given=recipe,
        recipe=recipe.model_copy(
            update={"train": resolve(settings, situation).with_values({"matryoshka": sizes})}
        ),
        situation=situation,
        original=data,
        data=prepared_data,
        whole=whole,
        future=future,
        model_source=model_source,
        negatives=kind,
        processes=processes,
        **models,
    )


def _with_prompt_of(data: RetrievalData, settings: TrainSettings) -> TrainSettings:
    """Take the query prompt that the data bring, unless the user gave one.

    Raises:
        SettingError: for a prompt that no user could give.
    """
    if data.query_prompt is None or settings.query_prompt is not None:
        return settings
    brought = TrainSettings.parse({"query_prompt": data.query_prompt}).query_prompt
    return settings.with_values({"query_prompt": brought})


def _with_held_out(whole: RetrievalData, data: RetrievalData) -> RetrievalData:
    held_out, train = data.held_out, whole.split("train")
    if held_out is not None:
        train = train.select_judgements(~held_out.contains(train))
    return replace(whole, splits={**whole.splits, "train": train}, held_out=held_out)


def _count(judgements: Qrels | None) -> int:
    return 0 if judgements is None else len(judgements.doc_rows)


def is_cosines(teacher: TeacherScores) -> bool:
    """Whether all scores are from -1 to 1, as cosines are."""
    return bool(np.abs(teacher.scores).max(initial=0) <= 1 + ROUNDING)
