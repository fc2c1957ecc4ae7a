"""Load a model of sentence-transformers, and configure it."""

from __future__ import annotations

import copy
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
from opera.core.terminal import first_line_of, log, shown
from opera.retrieval.kinds import (
    KINDS,
    EncodingKind,
    Kind,
    KindName,
    Sparse,
    encoding_kind_in,
    encoding_kind_of,
)
from opera.retrieval.kinds.dense import is_static, reads_vectors
from opera.retrieval.locate import (
    MINILM,
    SPLADE_TINY,
    Model,
    architectures_in,
    is_loaded,
    locate_model,
    model_title,
)
from opera.retrieval.prompts import LENGTH_SETTINGS, check_pooling
from opera.retrieval.trust import SAFE_LOADING, check_loaded, check_model_folder, download_model

FEWEST_WORDS = 0.1
"""Smallest vocabulary of a tokenizer, as a fraction of the rows of embeddings. Libraries replace a
missing tokenizer file by one with special tokens only."""

ORGANIZATION = SentenceTransformer.default_huggingface_organization
"""The owner of models on the hub whose names have none, of every kind."""

_LOADING = threading.RLock()
"""Only one thread may load a model: transformers changes torch's default type for all threads."""


@contextmanager
def loading_model() -> Iterator[list[str]]:
    """Let one thread load transformers in the block; yields the names of missing weights."""
    names: list[str] = []
    load = PreTrainedModel.from_pretrained.__func__

    def from_pretrained(kind: type[PreTrainedModel], *arguments: Any, **options: Any) -> Any:
        model, info = load(kind, *arguments, **{**options, "output_loading_info": True})
        names.extend(sorted(info["missing_keys"]))
        return (model, info) if options.get("output_loading_info") else model

    with _LOADING, torch.inference_mode(False):
        PreTrainedModel.from_pretrained = classmethod(from_pretrained)
        try:
            yield names
        finally:
            PreTrainedModel.from_pretrained = classmethod(load)


@torch.inference_mode(False)
def unused_parameters(model: SentenceTransformer) -> list[str]:
    """Return the names of parameters that do not affect embeddings, such as a pooler's."""
    was_training = model.training
    model.eval()  # so that dropout does not change the random state
    total: Any = torch.zeros((), device=model.device)
    output = encoding_kind_of(model).output
    for role in ("query", "document"):
        features = model.preprocess(["0"], task=role)
        inputs = {k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()}
        total = total + model(inputs, task=role)[output].float().sum()
    total.backward()
    unused = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is None
    ]
    for parameter in model.parameters():
        parameter.grad = None
    model.train(was_training)
    return unused


def _check_vocabulary(model: SentenceTransformer, title: str) -> None:
    """Refuse a tokenizer with special tokens only: libraries create it if its file is missing."""
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
            f"{title}: its tokenizer knows {words:,} words, but its weights have rows for "
            f"{rows:,}: a file of the tokenizer is missing; use a complete copy of the model"
        )


SMALL_TRANSFORMER = 50_000_000
"""A transformer with fewer parameters is small."""

_IRRELEVANT_LOGGERS = (
    "huggingface_hub",
    "transformers.trainer_utils",
    "transformers.utils.loading_report",
)
"""They warn about the network, file times, and heads that embeddings do not use."""


@torch.inference_mode(False)
@contextmanager
def head_from(seed: int) -> Iterator[None]:
    """Let libraries draw the weights of a new head from a seed; they use torch's generator."""
    with torch.random.fork_rng(devices=()):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        yield


def load_model(
    spec: Model, device: str, kind: KindName | None = None, seed: int = 0
) -> SentenceTransformer:
    """Load a model, or copy a loaded model, which stays as it is.

    Args:
        spec: a sentence-transformers folder, an OPERA run folder (its ``model/`` is loaded), a
            model id on the hub, ``minilm`` or ``splade-tiny`` for the models of packages, or a
            loaded model.
        device: device to load it on.
        kind: of the loaded model, by name; by default that of the folder. If the folder holds
            another kind, the model may get a new head, see :func:`adds_head`.
        seed: of a new head.

    Raises:
        ModelError: if the model does not exist or the folder holds no model; or for a loaded model
            that could not be loaded from a folder.
        MissingExtraError: if the package of a packaged model is not installed.
        SettingError: for a loaded model of another kind.
    """
    if is_loaded(spec):
        check_loaded(spec)
        if kind is not None and encoding_kind_of(spec).name != kind:
            raise SettingError(
                f"kind={kind}: the loaded model is a {type(spec).__name__}; save it with "
                "save_pretrained, and pass its folder"
            )
        model = copy.deepcopy(spec).float().to(device)
    else:
        chosen = None if kind is None else KINDS[kind]
        with head_from(seed):
            model = load_safely(chosen, spec, device, _check)
    encoding_kind_of(model).complete(model)
    check_similarity(model, model_title(spec))
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model


def check_similarity(model: SentenceTransformer, title: str) -> None:
    """Refuse a model whose similarity OPERA cannot search by.

    Raises:
        ModelError: with the similarities of its kind.
    """
    kind = encoding_kind_of(model)
    if (similarity := model.similarity_fn_name) not in kind.similarities:
        raise ModelError(
            f"{title}: similarity_fn_name: must be {' or '.join(kind.similarities)} for a "
            f"{kind.title}, got {shown(similarity)}"
        )


def adds_head(spec: Model, name: KindName | None) -> bool:
    """Whether loading a model as a kind adds weights that only training sets.

    Raises:
        ModelError: as :func:`load_model`.
    """
    if name is None or is_loaded(spec):
        return False
    kind, folder = KINDS[name], _folder_of(spec)
    if not issubclass(kind, EncodingKind) or _kind_of_folder(spec, folder) is kind:
        return False
    return kind.adds_head(folder, architectures_in(folder))


def _folder_of(spec: str | Path) -> Path:
    """Return the folder of a model, which is downloaded if need be.

    Raises:
        ModelError: if there is no such model.
    """
    located = locate_model(spec)
    if isinstance(located, Path):
        return located
    try:
        return download_model(located, ORGANIZATION)
    except Exception as error:  # libraries raise many types
        hint = f"; it is not a folder either ('{MINILM}' needs no network)"
        raise ModelError(f"{located}: cannot be loaded: {first_line_of(error)}{hint}") from error


def _check(model: SentenceTransformer, missing: list[str], title: str, folder: Path) -> None:
    """Refuse a model with incomplete files: libraries would fill the gaps with random values.

    ``missing`` are names of weights that its files lack. ``title`` starts the messages.
    """
    _check_vocabulary(model, title)
    unused = unused_parameters(model) if missing else []
    needed = [name for name in missing if not any(full.endswith(f".{name}") for full in unused)]
    if needed:
        raise ModelError(
            f"{title}: its files lack {len(needed):,} of the weights that its configuration asks "
            f"for, such as {shown(needed[0])}; use a complete copy of the model"
        )
    if isinstance(model, SentenceTransformer):  # only dense models choose a pooling
        check_pooling(model, title, folder)


def _add_padding(model: BaseModel, title: str) -> None:
    """Let tokenizers without a padding token pad with the end-of-text token, as decoders do.

    The attention mask hides the padding. ``title`` starts the message.
    """
    for module in model:
        tokenizer: Any = getattr(module, "tokenizer", None)
        if getattr(tokenizer, "pad_token", "") is None:
            if tokenizer.eos_token is None:
                raise ModelError(
                    f"{title}: its tokenizer has neither a padding token nor an end-of-text token; "
                    "set pad_token in its tokenizer_config.json"
                )
            tokenizer.pad_token = tokenizer.eos_token


def parameter_count(model: torch.nn.Module) -> int:
    """Count the parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def model_kind(model: SentenceTransformer) -> ModelKind:
    """The kind of the model, which decides its automatic settings."""
    if reads_vectors(model):
        return "adapter"
    if is_static(model):
        return "static"
    return "small" if parameter_count(model) < SMALL_TRANSFORMER else "large"


def set_lengths(
    model: SentenceTransformer, lengths: Mapping[str, int | None], chosen: Collection[str] = ()
) -> dict[str, int | None]:
    """Set the maximum number of tokens per query and document; they are saved with the model.

    Args:
        model: changed in place.
        lengths: by setting; capped at the model's limit, and ``None`` for that limit.
        chosen: names of the settings that the user set.

    Returns:
        The lengths in effect; ``None`` for a model that reads complete texts.

    Raises:
        SettingError: if the user set a length but the model does not truncate texts.
    """
    if hasattr(model[0], "query_length"):
        for role, name in LENGTH_SETTINGS.items():
            length = lengths[name]
            capped = min(length, model.max_seq_length or length) if length else None
            setattr(model[0], f"{role}_length", capped)
    elif refused := [name for name in LENGTH_SETTINGS.values() if name in chosen]:
        raise SettingError(
            f"{refused[0]}: {type(model[0]).__name__} reads whole texts; remove the setting, also "
            "from recipes"
        )
    return lengths_of(model)


def lengths_of(model: SentenceTransformer) -> dict[str, int | None]:
    """The maximum lengths of a model by setting; ``None`` for the model's limit."""
    return {
        name: getattr(model[0], f"{role}_length", None) for role, name in LENGTH_SETTINGS.items()
    }


def with_separate_settings(model: SentenceTransformer) -> SentenceTransformer:
    """Copy a model, sharing the weights but not the prompts, lengths and similarity."""
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
    """Recompute activations in the backward pass, to save memory; not saved with the model.

    The trainer's option would call a deprecated method of transformers.

    Raises:
        SettingError: if the model does not support it.
    """
    transformer = getattr(model[0], "auto_model", None)
    if transformer is None or not transformer.supports_gradient_checkpointing:
        kind = type(transformer or model[0]).__name__
        raise SettingError(
            f"gradient_checkpointing=true: {kind} does not support it; leave the setting out"
        )
    # transformers 5.21 renamed the method and deprecated the old name
    name = "activation_checkpointing_enable"
    enable = getattr(transformer, name, None) or transformer.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def freeze_unused_parameters(model: SentenceTransformer) -> None:
    """Freeze the parameters that do not affect embeddings, such as a pooler's.

    Otherwise distributed processes would wait forever for the gradients of these parameters.
    """
    for name in unused_parameters(model):
        model.get_parameter(name).requires_grad_(False)


def quiet_libraries() -> None:
    """Silence progress bars and news of other libraries, but not warnings about results."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_default_handler()  # the program's handler prints its records
    transformers_logging.enable_propagation()
    for name in _IRRELEVANT_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


def _kind_of_folder(spec: str | Path, folder: Path) -> type[EncodingKind]:
    """Return the kind of a model in a folder."""
    if str(spec) == SPLADE_TINY:
        return Sparse
    return encoding_kind_in(folder)


def _note_masked_language_model(folder: Path, title: str) -> None:
    if not (folder / "modules.json").is_file() and any(
        name.endswith("ForMaskedLM") for name in architectures_in(folder)
    ):
        log.info(
            "note: %s is a masked language model: OPERA uses it as a dense model; --kind sparse "
            "uses it as a sparse one",
            title,
        )


def load_safely(
    kind: type[Kind] | None,
    spec: str | Path,
    device: str,
    check: Callable[[Any, list[str], str, Path], None],
    **options: Any,
) -> Any:
    """Load a model in float32, without running code from its files; autocast lowers precision.

    ``kind`` is by default that of the folder. ``check`` gets the model, the names of missing
    weights, its name in messages, and its folder.

    Raises:
        ModelError, MissingExtraError: as :func:`load_model`.
    """
    located, hint = locate_model(spec), ""
    if isinstance(located, str):
        hint = f"; it is not a folder either ('{MINILM}' needs no network)"
    title = "sentence-transformers model" if kind is None else kind.title
    try:
        folder = download_model(located, ORGANIZATION) if isinstance(located, str) else located
        quiet_libraries()
        check_model_folder(folder)
        if kind is None:
            kind = _kind_of_folder(spec, folder)
            if kind is KINDS["dense"]:
                _note_masked_language_model(folder, str(located))
        safe = {"trust_remote_code": False, "local_files_only": True}
        with loading_model() as missing:
            model = kind.model_class(
                str(folder), device=device, model_kwargs=dict(SAFE_LOADING), **safe, **options
            ).float()
        _add_padding(model, str(located))
        check(model, missing, str(located), folder)
    except ModelError:
        raise
    except Exception as error:  # libraries raise many types if a model is not usable
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{located}: cannot be loaded as a {title}: {first_line_of(error)}{hint}"
        ) from error
    return model
