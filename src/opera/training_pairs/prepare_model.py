"""Load the model of a run, and prepare it for training: lengths, prompts, adapter, LoRA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from opera.adapter.model import adapter_model, encode_all
from opera.adapter.vectors import service_model
from opera.config.encoding import EncodingSettings
from opera.config.training import TrainSettings
from opera.core.errors import ModelError, SettingError
from opera.data import RetrievalData
from opera.retrieval.device import pick_device
from opera.retrieval.encoder import EmbeddingParts, Encoder
from opera.retrieval.locate import locate_model
from opera.retrieval.lora import add_lora, has_lora, lora_parameters
from opera.retrieval.models import (
    checkpoint_gradients,
    is_static,
    lengths_of,
    load_model,
    parameter_count,
    quiet_libraries,
    reads_vectors,
    set_dropout,
    set_lengths,
    with_separate_settings,
)
from opera.retrieval.prompts import ROLES, set_prompts, warn_of_missing_prompts


@dataclass(frozen=True)
class RunModel:
    """The model of a run.

    Attributes:
        source: the user's name of the model.
        trained: the model to train.
        base: the base model below an adapter, which does not train; ``None`` without an adapter.
        encoder: the base model with the run's settings: lengths, prompts and cosine.
        base_as_saved: the base model with its folder's settings, for the evaluation before
            training; ``encoder`` itself if the settings are equal. Both share the weights.
        overridden: the settings that the run changes and saves with the final model: the folder's
            value and the run's value, by name.
    """

    source: str
    trained: SentenceTransformer
    base: SentenceTransformer | None
    encoder: Encoder
    base_as_saved: Encoder
    overridden: dict[str, tuple[Any, Any]]

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


def prepare_model(source: str, settings: TrainSettings, data: RetrievalData) -> RunModel:
    """Load the model, or a model's vectors from files. Create the adapter, if the settings ask.

    Raises:
        InputError: if the model cannot be loaded, or a setting does not fit it.
    """
    _check_adapter_settings(settings)
    if settings.query_vectors is not None:
        quiet_libraries()  # like load_model
        files = Path(settings.query_vectors), Path(settings.document_vectors or "")
        model = service_model(*files, data, pick_device())
        overridden = {}
        encoder = base_as_saved = Encoder(model, settings.precision)
        encode_all(encoder, data, settings.corpus_text)  # finds bad vectors before the run starts
    else:
        model, as_loaded = _loaded(source, settings)
        encoder, base_as_saved = (
            Encoder(one, settings.precision, settings.encode_batch_size)
            for one in (model, as_loaded)
        )
        overridden = {
            name: (base_as_saved.settings[name], value)
            for name, value in encoder.settings.items()
            if value != base_as_saved.settings[name]
        }
        for role in ROLES:  # a user's prompt that the folder lacks is used before training too
            base_as_saved.prompts[role] = base_as_saved.prompts[role] or encoder.prompts[role]
        as_loaded.prompts.update(base_as_saved.prompts)
        if base_as_saved.settings == encoder.settings:
            base_as_saved = encoder
    if model.truncate_dim is not None:
        raise ModelError(
            f"{source}: cuts its embeddings to {model.truncate_dim} dimensions (truncate_dim), but "
            "training uses all; save the model without truncate_dim, and train it with --matryoshka"
        )
    trained, base = model, None
    if settings.adapter_kind is not None:
        trained = adapter_model(encoder.dimension, settings.adapter_kind, encoder.device)
        base = model
    if settings.gradient_cache is not None and is_static(trained):
        raise SettingError(
            f"gradient_cache={settings.gradient_cache}: applies only to transformers; "
            f"{type(trained[0]).__name__} stores no activations, so large batches need no cache; "
            "remove the setting"
        )
    if settings.lora_options is not None:
        for base_encoder in (encoder, base_as_saved):
            _ = base_encoder.fingerprint  # cached before LoRA changes the model
        location = locate_model(source)
        place = str(location.resolve()) if isinstance(location, Path) else location
        add_lora(trained, settings.lora_options, settings.seed, place)
    return RunModel(source, trained, base, encoder, base_as_saved, overridden)


def _loaded(
    source: str, settings: TrainSettings
) -> tuple[SentenceTransformer, SentenceTransformer]:
    """Return the model with the run's settings, and with its folder's settings."""
    model = load_model(source, pick_device())
    if has_lora(model):
        raise ModelError(
            f"{source}: has LoRA matrices that are not merged, which OPERA cannot train further; "
            "train it with merge=true, or merge them with peft"
        )
    as_loaded = with_separate_settings(model)
    lengths = {name: getattr(settings, name) for name in lengths_of(model)}
    set_lengths(model, lengths, settings.model_fields_set)
    set_prompts(model, settings.query_prompt, settings.document_prompt)
    model.similarity_fn_name = "cosine"
    warn_of_missing_prompts(model.prompts, source, settings.query_prompt, settings.document_prompt)
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    if settings.gradient_checkpointing:
        checkpoint_gradients(model)
    return model, as_loaded


def _check_adapter_settings(settings: TrainSettings) -> None:
    """Reject settings without effect on an adapter: of the model's training, and of encoding if the
    vectors come from files.
    """
    unused = set() if settings.adapter_kind is None else {"dropout"}
    reason = "the model does not train"
    if settings.query_vectors is not None:
        lengths = {"max_query_length", "max_passage_length"}
        unused |= {*lengths, "corpus_text", "query_prompt", "document_prompt"}
        reason = "the vectors come from files"
    for name in sorted(unused & settings.model_fields_set):
        if (value := getattr(settings, name)) != EncodingSettings.model_fields[name].default:
            raise SettingError(
                f"{name}={value}: has no effect with adapter={settings.adapter_kind}, because "
                f"{reason}; remove the setting"
            )


def encoder_of(
    model: SentenceTransformer,
    settings: TrainSettings,
    show_progress: bool = True,
    embeddings: EmbeddingParts | None = None,
) -> Encoder:
    """Return an encoder without a cache on disk, for a model that changes in this run."""
    return Encoder(
        model,
        settings.precision,
        settings.encode_batch_size,
        use_cache=False,
        show_progress=show_progress,
        memory=embeddings,
    )
