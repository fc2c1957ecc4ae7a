"""Which model is this: its weights, and the configuration of every part that decides an embedding.

Names, paths, versions and dropout do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

import torch
from sentence_transformers.base.model import BaseModel
from torch import nn
from transformers import PreTrainedModel

from opera.core.environment import is_reproducible
from opera.core.processor import torch_computes_all
from opera.core.terminal import log

LAYOUT = "4"
"""Part of every key of cached vectors, rankings and scores. Change it if encoding or search
computes something else."""
MODEL_ATTRIBUTES = ("truncate_dim", "similarity_fn_name")
TOKENIZER_ATTRIBUTES = (
    *("model_max_length", "truncation_side", "padding_side"),
    *("split_special_tokens", "chat_template"),
)
IRRELEVANT = re.compile(
    r"_name_or_path|transformers_version|(torch_)?dtype|.*(dropout|pdrop|layerdrop).*|"
    r"(query|document)_length"
)
"""Entries of configurations that do not affect embeddings. :func:`reading` has the lengths."""
VISIBLE_PACKAGES = {"torch", "transformers", "sentence_transformers", "peft", "opera"}
"""Packages whose modules are determined by weights and configuration. The keys of the cache contain
their versions."""


def fingerprint(model: BaseModel) -> str:
    """SHA-256 of everything that a model's results depend on, except prompts and lengths."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    facts: list[Any] = [getattr(model, name, None) for name in MODEL_ATTRIBUTES]
    if (most := getattr(model, "max_active_dims", None)) is not None:  # of a sparse model
        facts.append(["max_active_dims", most])
    for name, module in model.named_modules(remove_duplicate=False):
        if name and not isinstance(module, nn.Dropout):
            facts.append([name, *_facts(module)])
    total.update(repr(facts).encode())
    return total.hexdigest()


def _facts(module: Any) -> list[Any]:
    """Everything except the weights that decides what a module of a model computes."""
    facts: list[Any] = [type(module).__qualname__, module.extra_repr()]
    if hasattr(module, "get_config_dict"):
        facts.append(_relevant(module.get_config_dict()))
    if isinstance(module, PreTrainedModel):
        facts.append(_relevant(module.config.to_dict()))
    if hasattr(module, "merged_adapters"):  # a layer of peft
        switches = module.active_adapters, module.merged_adapters, module.disable_adapters
        facts.append([getattr(module, "scaling", None), *switches])
    if (tokenizer := _tokenizer(module)) is not None and hasattr(
        tokenizer_backend(tokenizer), "to_str"
    ):
        facts.append(tokenizer_facts(tokenizer))
    return facts


def _relevant(value: Any) -> Any:
    """A configuration without its irrelevant entries, in a fixed order."""
    if isinstance(value, dict):
        entries = [(str(key), _relevant(entry)) for key, entry in value.items()]
        return sorted((key, entry) for key, entry in entries if not IRRELEVANT.fullmatch(key))
    return [_relevant(entry) for entry in value] if isinstance(value, list | tuple) else value


def _tokenizer(module: nn.Module) -> Any:
    """The tokenizer that a module holds, and no tokenizer of another module."""
    processor = vars(module).get("processor")
    return vars(module).get("tokenizer") or getattr(processor, "tokenizer", processor)


def tokenizer_backend(tokenizer: Any) -> Any:
    """Return the tokenizer of the library tokenizers inside a fast tokenizer, else the argument."""
    return getattr(tokenizer, "backend_tokenizer", tokenizer)


def tokenizer_facts(tokenizer: Any) -> str:
    """Everything in a fast tokenizer that decides token ids, except the lengths by role."""
    backend = tokenizer_backend(tokenizer)
    state = json.loads(backend.to_str())
    if backend is not tokenizer:
        state.update(truncation=None, padding=None)  # they depend on the last call
    attributes = [getattr(tokenizer, name, None) for name in TOKENIZER_ATTRIBUTES]
    return json.dumps([state, attributes], sort_keys=True)


def reading(model: BaseModel, role: str | None, prompt: str) -> str:
    """How a model reads the texts of a role: its prompt, and the number of tokens in each part."""
    lengths = [
        getattr(module, f"{role}_length", None) or module.max_seq_length
        for module in model.modules()
        if hasattr(module, "query_length")
    ]
    return f"{prompt}\0{lengths}"


def may_cache(model: BaseModel) -> bool:
    """Whether :func:`fingerprint` sees all of a model; else logs once which module it cannot see.

    Another model could get the cached results of a model with a hidden module.
    """
    for module in model.modules():
        tokenizer = _tokenizer(module)
        if (
            type(module).__module__.partition(".")[0] not in VISIBLE_PACKAGES
            or {"forward", "preprocess"} & vars(module).keys()
            or getattr(module, "backend", "torch") != "torch"
            or not (tokenizer is None or hasattr(tokenizer_backend(tokenizer), "to_str"))
        ):
            _log_hidden(type(module).__qualname__)
            return False
    return True


@cache
def _log_hidden(module: str) -> None:
    log.info(
        "note: OPERA cannot see all of %s, so it does not cache what the model computes", module
    )


def computation_key(precision: str, device: str) -> str:
    """The precision, device and library versions on which vectors and scores depend."""
    versions = (version(library) for library in ("sentence-transformers", "transformers"))
    how = "reproducible" if is_reproducible() else "plain" * torch_computes_all()
    return " ".join([LAYOUT, precision, device, *versions, how])


def cache_key(parts: Iterable[str]) -> str:
    """The name of a cache entry that depends on ``parts``."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
