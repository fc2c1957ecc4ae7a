"""Load and check data, model and settings before a run writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.adapter.model import adapter_model, encode_all, save_adapted, service_model
from opera.config.automatic import AUTOMATIC, TRANSFORMERS, Situation, resolve
from opera.config.recipe import Recipe
from opera.config.training import LoraOptions, TrainSettings
from opera.core.errors import ModelError, SettingError
from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.identity import run_identity
from opera.retrieval.device import pick_device
from opera.retrieval.encoder import (
    EmbeddingParts,
    Encoder,
    check_passages,
    use_trained_similarity,
)
from opera.retrieval.kinds import KindName, encoding_kind_of
from opera.retrieval.kinds.dense import is_static, reads_vectors
from opera.retrieval.locate import (
    Model,
    is_loaded,
    locate_model,
    model_title,
    origin_of,
    run_passages,
)
from opera.retrieval.lora import add_lora, has_lora, lora_parameters, merged
from opera.retrieval.models import (
    adds_head,
    checkpoint_gradients,
    lengths_of,
    load_model,
    model_kind,
    parameter_count,
    quiet_libraries,
    set_dropout,
    set_lengths,
    with_separate_settings,
)
from opera.retrieval.prompts import ROLES, set_prompts, warn_of_missing_prompts
from opera.training.model_settings import check_adapter, check_kind, check_new_head
from opera.training.negatives import by_draws
from opera.training.prepare_data import RunData, prepare_data

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
        user_recipe: the user's settings.
        recipe: the settings with resolved automatic values.
        situation: the facts that automatic values depend on.
        data: the data in the versions that a run needs.
        model: the model to train, and the base model.
    """

    user_recipe: Recipe
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
    def ranks_all(self) -> bool:
        """Whether the guard encodes all documents with the fine-tuned model. A linear map predicts
        the vectors of other models."""
        return self.is_static or self.situation.kind != "dense"

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
        model = self.model.encoder.fingerprint
        return run_identity(self.user_recipe, self.data.with_splits, model, self.processes)

    def encode(self) -> None:
        """Encode every text once for an adapter, which trains on the vectors."""
        text = self.settings.corpus_text
        vectors = encode_all(self.model.encoder, self.data.with_splits.joined, text)
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
        if sizes is not None and hasattr(model[0], "auto_model") and not keeps_base:
            dimensions = [self.model.encoder.dimension, *sizes]
            model[0].auto_model.config.matryoshka_dimensions = dimensions  # vLLM reads it
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
        recipe = self.recipe.model_copy(update={"train": self.settings.model_copy(update=values)})
        data = replace(self.data, negatives=recorded.get("negatives", self.data.negatives))
        return replace(self, recipe=recipe, data=data)


def load_and_check(
    mixture: Mixture,
    model_source: Model,
    recipe: Recipe,
    processes: int = 1,
) -> Prepared:
    """Load the model, and check that data, model and settings fit together; write nothing.

    Args:
        mixture: the data sets.
        model_source: a source for :func:`opera.retrieval.models.load_model`.
        recipe: all settings.
        processes: the number of processes that train together.

    Raises:
        InputError: for invalid input.
    """
    user_recipe, settings = recipe, _with_passages(recipe.train, model_source)
    if new_head := adds_head(model_source, settings.kind):
        check_new_head(str(settings.kind), recipe.method_class)
        log.info(
            "note: a %s model gets a new head, so the guard is off, and the base model is measured "
            "as a dense model",
            settings.kind,
        )
        settings = settings.model_copy(update={"guard": False})
    recipe = recipe.model_copy(update={"train": settings})
    settings.explicit_batch_size(processes)  # raises errors early
    run_data = prepare_data(mixture, recipe)
    prompt = mixture.joined.query_prompt
    if prompt is not None and settings.query_vectors is None and settings.query_prompt is None:
        checked = TrainSettings.parse({"query_prompt": prompt}).query_prompt
        settings = settings.model_copy(update={"query_prompt": checked})
    model = prepare_model(model_source, settings, run_data.with_splits.joined, new_head)
    sizes, dimension = settings.matryoshka or (), model.encoder.dimension
    if max(sizes, default=0) > dimension:
        raise SettingError(
            f"matryoshka={sizes[0]}: the embeddings have {dimension} dimensions; pass smaller "
            "numbers"
        )
    kind = encoding_kind_of(model.trained) if new_head else model.encoder.kind
    check_kind(kind, settings, processes)
    situation = Situation(
        queries=run_data.all_queries,
        model=model_kind(model.trained),
        device=model.encoder.device,
        processes=processes,
        lora=settings.lora is not None,
        kind=kind.name,
        known_documents=run_data.known_on_dev,
    )
    smaller = tuple(size for size in sizes if size < dimension) or None  # the full size is implied
    resolved = resolve(settings, situation).model_copy(update={"matryoshka": smaller})
    negatives = by_draws(run_data.negatives, resolved, len(mixture.joined.corpus), processes)
    run_data = replace(run_data, negatives=negatives)
    used = recipe.model_copy(update={"train": resolved})
    return Prepared(user_recipe, used, situation, run_data, model)


def _with_passages(settings: TrainSettings, model: Model) -> TrainSettings:
    """Resolve the automatic length of passages; ``None`` in the result means whole documents.

    An adapter reads whole documents, also on the model of a run with passages.
    """
    passages = settings.passages
    if passages is None and settings.adapter_kind is None:
        passages = run_passages(model)
        if passages is not None:
            log.info("note: passages=%d, as in the run that made %s", passages, model_title(model))
    return settings.model_copy(update={"passages": passages or None})


@dataclass(frozen=True)
class RunModel:
    """The model of a run.

    Attributes:
        source: the user's model.
        trained: the model to train.
        base: the base model below an adapter, which does not train; ``None`` without an adapter.
        encoder: the base model with the run's settings: lengths, prompts and similarity.
        base_as_saved: the base model with its folder's settings, for the evaluation before
            training; ``encoder`` itself if the settings are equal. Both share the weights.
        trained_before: hashes of the queries that earlier runs trained the base model on.
        overridden: the settings that the run changes and saves with the final model: the folder's
            value and the run's value, by name.
        has_new_head: whether ``trained`` is the base model with a new head. Then the base model is
            dense, and does not share its weights.
    """

    source: Model
    trained: SentenceTransformer
    base: SentenceTransformer | None
    encoder: Encoder
    base_as_saved: Encoder
    trained_before: NDArray[np.uint64]
    overridden: dict[str, tuple[Any, Any]]
    has_new_head: bool = False

    @property
    def n_parameters(self) -> int:
        """The number of parameters, of the base model if there is an adapter."""
        size = parameter_count(self.trained) - lora_parameters(self.trained)
        return size if self.base is None else parameter_count(self.base) or size

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of the run by setting; empty for vectors from files."""
        if reads_vectors(self.encoder.model):
            return {}
        return {f"{role}_prompt": prompt for role, prompt in self.encoder.prompts.items()}


def prepare_model(
    source: Model, settings: TrainSettings, data: RetrievalData, new_head: bool = False
) -> RunModel:
    """Load the model, or a model's vectors from files. Create the adapter, if the settings ask.

    With ``new_head``, the model to train is another copy, of the kind of the settings.

    Raises:
        InputError: if the model cannot be loaded, or a setting does not fit it.
    """
    check_adapter(settings)
    if reads_files := settings.query_vectors is not None:
        encoder = base_as_saved = _file_encoder(settings, data)
        overridden = dict[str, tuple[Any, Any]]()
    else:
        encoder, base_as_saved, overridden = _text_encoders(
            source, settings, "dense" if new_head else settings.kind
        )
    model = encoder.model
    if new_head:
        model = _text_encoders(source, settings, settings.kind)[0].model
    if getattr(model, "truncate_dim", None) is not None:
        raise ModelError(
            f"{model_title(source)}: cuts its embeddings to {model.truncate_dim} dimensions "
            "(truncate_dim), but training uses all; save the model without truncate_dim, and train "
            "it with --matryoshka"
        )
    trained, base = model, None
    if (kind := settings.adapter_kind) is not None:
        trained, base = adapter_model(encoder.dimension, kind, encoder.device), model
    if settings.gradient_cache is not None and is_static(trained):
        raise SettingError(
            f"gradient_cache={settings.gradient_cache}: applies only to transformers; "
            f"{type(trained[0]).__name__} stores no activations, so large batches need no cache; "
            "remove the setting"
        )
    if settings.lora_options is not None:
        for base_encoder in (encoder, base_as_saved):
            _ = base_encoder.fingerprint  # cached before LoRA changes the model
        _add_lora(trained, source, settings.lora_options, settings.seed)
    origin = None if reads_files else origin_of(source)
    trained_before = np.empty(0, dtype=np.uint64) if origin is None else origin.queries
    before = encoder, base_as_saved, trained_before, overridden
    return RunModel(source, trained, base, *before, new_head)


def _file_encoder(settings: TrainSettings, data: RetrievalData) -> Encoder:
    """Return an encoder that reads the vectors of all texts from files."""
    quiet_libraries()  # like load_model
    files = Path(settings.query_vectors or ""), Path(settings.document_vectors or "")
    encoder = Encoder(service_model(*files, data, pick_device()), settings.precision)
    encode_all(encoder, data, settings.corpus_text)  # finds bad vectors before the run starts
    return encoder


def _text_encoders(
    source: Model, settings: TrainSettings, kind: KindName | None
) -> tuple[Encoder, Encoder, dict[str, tuple[Any, Any]]]:
    """Load the model.

    Returns:
        ``encoder``, ``base_as_saved`` and ``overridden`` of :class:`RunModel`.
    """
    model = load_model(source, pick_device(), kind, settings.seed)
    if has_lora(model):
        raise ModelError(
            f"{model_title(source)}: has LoRA matrices that are not merged, which OPERA cannot "
            "train further; train it with merge=true, or merge them with peft"
        )
    as_saved = with_separate_settings(model)
    lengths = {name: getattr(settings, name) for name in lengths_of(model)}
    set_lengths(model, lengths, settings.model_fields_set)
    set_prompts(model, settings.query_prompt, settings.document_prompt)
    use_trained_similarity(model)
    warn_of_missing_prompts(model.prompts, source, settings.query_prompt, settings.document_prompt)
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    if settings.of_trainer("gradient_checkpointing"):
        checkpoint_gradients(model)
    check_passages(model, settings.passages)
    encoder, base_as_saved = (
        encoder_of(read_model, settings, use_cache=True) for read_model in (model, as_saved)
    )
    overridden = {
        name: (base_as_saved.settings[name], value)
        for name, value in encoder.settings.items()
        if value != base_as_saved.settings[name]
    }
    for role in ROLES:  # a user's prompt that the folder lacks is used before training too
        base_as_saved.prompts[role] = base_as_saved.prompts[role] or encoder.prompts[role]
    as_saved.prompts.update(base_as_saved.prompts)
    same = base_as_saved.settings == encoder.settings
    return encoder, encoder if same else base_as_saved, overridden


def _add_lora(model: SentenceTransformer, source: Model, lora: LoraOptions, seed: int) -> None:
    """Add LoRA matrices to a model.

    Raises:
        SettingError: for ``merge=false`` with a loaded model, which has no folder or name.
    """
    if is_loaded(source) and not lora.merge:
        raise SettingError(
            "lora: merge=false saves only matrices for a base model in a folder or on the hub, "
            "but this model is loaded; save it with save_pretrained, and pass its folder"
        )
    location = locate_model(source)
    add_lora(model, lora, seed, str(location.resolve() if isinstance(location, Path) else location))


def encoder_of(
    model: SentenceTransformer,
    settings: TrainSettings,
    show_progress: bool = True,
    embeddings: EmbeddingParts | None = None,
    use_cache: bool = False,
) -> Encoder:
    """Return an encoder of a model; without a cache on disk if the model changes in this run."""
    return Encoder(
        model,
        settings.precision,
        settings.encode_batch_size,
        use_cache=use_cache,
        show_progress=show_progress,
        memory=embeddings,
        passage_tokens=settings.passages,
    )
