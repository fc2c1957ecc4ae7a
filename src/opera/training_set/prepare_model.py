"""Load the model of a run, and make it ready to train: lengths, prompts, an adapter, LoRA's
matrices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from opera.adapter.model import adapter_model, encode_all
from opera.adapter.vectors import service_model
from opera.config.automatic import preset_precision
from opera.config.encoding import EncodingSettings
from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.core.processes import process_index
from opera.data import RetrievalData
from opera.retrieval.device import pick_device
from opera.retrieval.encoder import Encoder
from opera.retrieval.locate import locate_model
from opera.retrieval.lora import add_lora
from opera.retrieval.models import (
    checkpoint_gradients,
    is_static,
    lengths_of,
    load_model,
    model_kind,
    quiet_libraries,
    set_dropout,
    set_lengths,
)
from opera.retrieval.prompts import ROLES, as_setting, set_prompts, warn_of_missing_prompts
from opera.runs.folder import holds_run


def load_models(model_source: str, settings: TrainSettings) -> dict[str, Any]:
    """Load the model and its encoder, and put an adapter in its place where one is asked for."""
    if settings.adapter_kind is not None:
        _refuse_settings_of_models(settings)
    model = load_model(model_source, pick_device())
    own_lengths = lengths_of(model)
    wanted = {name: getattr(settings, name) for name in own_lengths}
    lengths = set_lengths(model, wanted, settings.model_fields_set)
    set_prompts(model, settings.query_prompt, settings.document_prompt)
    if process_index() == 0 and not holds_run(Path(model_source)):
        decided = [role for role in ROLES if getattr(settings, f"{role}_prompt") is not None]
        warn_of_missing_prompts(model.prompts, model_source, decided, as_setting)
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    if settings.gradient_checkpointing:
        checkpoint_gradients(model)
    precision = preset_precision(settings, model_kind(model), pick_device())
    encoder = Encoder(
        model,
        precision,
        settings.encode_batch_size,
    )
    loaded = {"model": model, "encoder": encoder, "lengths": lengths, "own_lengths": own_lengths}
    if settings.adapter_kind is None:
        return loaded
    trained = adapter_model(encoder.dimension, settings.adapter_kind, encoder.device)
    return {**loaded, "model": trained, "base": model}


def read_vectors(data: RetrievalData, settings: TrainSettings) -> dict[str, Any]:
    """Read the vectors of a model that cannot be loaded, and make an adapter of them."""
    quiet_libraries()  # as loading a model does
    _refuse_settings_of_models(settings)
    files = Path(settings.query_vectors or ""), Path(settings.document_vectors or "")
    base = service_model(*files, data, pick_device())
    encoder = Encoder(base, settings.precision)
    encode_all(encoder, data, settings.corpus_text)  # finds each bad vector before a run is written
    lengths = lengths_of(base)
    model = adapter_model(encoder.dimension, settings.adapter_kind or "query", encoder.device)
    return {
        "model": model,
        "base": base,
        "encoder": encoder,
        "lengths": lengths,
        "own_lengths": lengths,
    }


def _refuse_settings_of_models(settings: TrainSettings) -> None:
    """Refuse settings that an adapter does not read: those of a model's training, and without a
    model all of encoding.

    Raises:
        SettingError: naming the first.
    """
    refused = {"dropout"}
    if settings.query_vectors is not None:
        refused |= {"max_query_length", "max_passage_length", "corpus_text"}
        refused |= {"query_prompt", "document_prompt"}
    for name in sorted(refused & settings.model_fields_set):
        value = getattr(settings, name)
        if value != EncodingSettings.model_fields[name].default:
            reason = (
                "vectors come from files"
                if settings.query_vectors
                else "the model itself does not train"
            )
            raise SettingError(
                f"{name}={value}: with adapter={settings.adapter_kind} {reason}; leave the setting "
                f"out"
            )


def add_lora_to(
    model: SentenceTransformer, encoder: Encoder, settings: TrainSettings, source: str
) -> None:
    """Add LoRA's matrices where the settings ask for them.

    Args:
        model: changed in place.
        encoder: its encoder, whose fingerprint stays that of the pretrained model.
        settings: the run's settings.
        source: what the user called the model.
    """
    options = settings.lora_options
    if options is None:
        return
    _ = encoder.fingerprint  # computed once, and kept
    found = locate_model(source)
    place = str(found.resolve()) if isinstance(found, Path) else found
    add_lora(model, options, settings.seed, place)


def checked_sizes(sizes: tuple[int, ...] | None, dimension: int) -> tuple[int, ...] | None:
    """Return the sizes that are smaller than the embeddings, whose own size always counts; ``None``
    for none.

    Raises:
        SettingError: for a size above the embeddings' own.
    """
    if sizes is not None and sizes[0] > dimension:
        raise SettingError(
            f"matryoshka={sizes[0]}: the embeddings have {dimension} dimensions; give smaller "
            f"numbers"
        )
    return tuple(size for size in sizes or () if size < dimension) or None


def check_gradient_cache(texts: int | None, model: SentenceTransformer) -> None:
    """Refuse gradient caching for models whose inputs cannot be cut, and which keep nothing that it
    would save.

    Raises:
        SettingError: naming the setting.
    """
    if texts is not None and is_static(model):
        raise SettingError(
            f"gradient_cache={texts}: is for transformers; {type(model[0]).__name__} keeps nothing "
            f"between its layers, "
            "so large batches need no cache; leave the setting out"
        )


def encoder_of(
    model: SentenceTransformer, settings: TrainSettings, show_progress: bool = True
) -> Encoder:
    """Return an encoder without a cache, for a model that this run made."""
    return Encoder(
        model,
        settings.precision,
        settings.encode_batch_size,
        use_cache=False,
        show_progress=show_progress,
    )
