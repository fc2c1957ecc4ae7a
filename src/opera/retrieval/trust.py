"""A model is read, never run: no pickle, no code that its folder names, only data from the hub."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download, try_to_load_from_cache
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import ORIGINAL_TRANSFORMER_MODELS
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules.tokenizer import WordTokenizer
from sentence_transformers.util import import_from_string
from torch import nn

from opera.core.errors import ModelError
from opera.core.paths import kind_of_place
from opera.core.reading import read_text
from opera.core.terminal import place, shown
from opera.retrieval.locate import check_readable

DATA_FILES = ["*.json", "*.jinja", "*.model", "*.safetensors", "*.txt"]
"""What is downloaded from the hub: configuration, vocabulary and weights, no code and no pickle."""
SAFE_LOADING = {"use_safetensors": True, "weights_only": True}
"""What every loader is told; arguments of the caller go before those of a model's files."""

INDEX, ADAPTER_CONFIG = ".safetensors.index.json", "adapter_config.json"
ROUTER_CONFIGS = ("router_config.json", "config.json")
"""The last one in folders of old routers."""
CONFIGURATION = re.compile(
    r"modules\.json|config(\..*)?\.json|\w+(-\w+)?_config\.json|.*\.safetensors\.index\.json"
)
"""Files that decide how a model is loaded; also those of versions, ``config.5.0.0.json``."""
TRANSFORMER_CONFIG = re.compile(r"sentence_\w+(-\w+)?_config\.json")
TRANSFORMER_ARGUMENTS = frozenset(
    {
        "do_lower_case", "document_length", "max_seq_length", "modality_config",
        "module_output_name", "processing_kwargs", "query_expansion", "query_length",
        "transformer_task", "unpad_inputs",
    }
)  # fmt: skip
"""What ``sentence_bert_config.json`` may set, beside what follows; no folder of a tokenizer."""
LOADERS = frozenset(
    {
        "model_kwargs", "processor_kwargs", "config_kwargs",
        "model_args", "tokenizer_args", "config_args",
    }
)  # fmt: skip
"""What it hands to transformers, under new names and old ones."""
LOADER_ARGUMENTS = frozenset(
    {
        "add_bos_token", "add_eos_token", "add_pooling_layer", "attn_implementation",
        "do_lower_case", "dtype", "is_causal", "is_decoder", "model_max_length", "padding_side",
        "torch_dtype", "truncation_side", "use_cache",
        # without effect, since the libraries or OPERA overrule them:
        "low_cpu_mem_usage", "trust_remote_code", "use_fast", "use_safetensors",
    }
)  # fmt: skip
"""What these may hold, as plain values. Others place weights, fetch kernels, or read elsewhere."""
PICKLED = re.compile(r"(?:pytorch_)?((?:adapter_)?model).*\.bin")
IMPLEMENTATIONS = re.compile(r"_?(attn|experts)_implementation")
METHODS = re.compile(r"forward|get_\w+_features")


def download_model(
    name: str, organization: str | None = SentenceTransformer.default_huggingface_organization
) -> Path:
    """Return the folder of a model on the hub, downloaded or from huggingface_hub's cache.

    Raises:
        OSError, ValueError: by huggingface_hub, without such a model or connection.
    """
    short = "/" not in name and name.lower() not in ORIGINAL_TRANSFORMER_MODELS
    full = f"{organization}/{name}" if short else name
    return Path(snapshot_download(full, allow_patterns=DATA_FILES))


def check_model_folder(folder: Path, known: Iterable[str] = ()) -> None:
    """Refuse a folder that asks for code of others or holds weights as pickles only.

    Args:
        folder: as sentence-transformers or transformers saves a model.
        known: classes beyond those of sentence-transformers that its modules may be of.

    Raises:
        ModelError: naming the file, the rule and the value.
    """
    for path in _files(folder):
        for fine, rule in _rules(path, known):
            if not fine:
                raise ModelError(f"{path}: {rule}")


Rules = Iterator[tuple[bool, str]]
"""What must be true, and how it is said; each holds when the next is looked at."""


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, also behind links, each folder once."""

    def refuse(error: OSError) -> None:
        raise ModelError(f"{place(error.filename)}: cannot be read ({error.strerror})")

    seen = set()
    for home, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        check_readable(Path(home))
        seen.add(os.path.realpath(home))
        folders[:] = sorted(
            name for name in folders if os.path.realpath(Path(home, name)) not in seen
        )
        yield from (Path(home, name) for name in sorted(names))


def _rules(path: Path, known: Iterable[str]) -> Rules:
    found = kind_of_place(path)  # opening a pipe would wait for ever
    yield found in ("a file", None), f"must be a file, but is {found}"
    if found is not None:
        check_readable(path)
    if pickled := PICKLED.match(path.name):
        yield (
            any(path.parent.glob(f"{pickled[1]}*.safetensors")),
            "weights must be .safetensors, and this is a pickle, which may run code; if you trust "
            "it, load the model with sentence_transformers and save it again with save_pretrained",
        )
    if not CONFIGURATION.fullmatch(path.name):
        return
    content = _parsed(path)
    if path.name == "modules.json":
        listed = isinstance(content, list) and all(isinstance(entry, dict) for entry in content)
        yield listed, "must be a list of objects, one per module"
        yield from _classes([entry.get("type") for entry in content], known)
    if not isinstance(content, dict):
        return  # its loader says what is wrong with it
    if path.name in ROUTER_CONFIGS and isinstance(content.get("types"), dict):
        yield from _classes(content["types"].values(), known)
    if path.name.endswith(INDEX):
        yield from _weights(content.get("weight_map"), path.parent)
    if TRANSFORMER_CONFIG.fullmatch(path.name):
        yield from _arguments(content)
    if path.name == ADAPTER_CONFIG:
        yield from _adapter(content)
    if path.name == "wordembedding_config.json":
        name = content.get("tokenizer_class")
        yield (
            _is_class(name, WordTokenizer),
            f"tokenizer_class: must be a tokenizer of sentence_transformers, got {shown(name)}",
        )
    if "in_features" in content and "activation_function" in content:  # of a Dense
        name = content["activation_function"]
        yield (
            str(name).startswith("torch.nn.") and _is_class(name, nn.Module),
            f"activation_function: must be a module of torch.nn, got {shown(name)}; "
            "sentence_transformers would compute Tanh in its place",
        )
    yield from _entries(content)


def _classes(names: Iterable[Any], known: Iterable[str]) -> Rules:
    for name in names:
        yield (
            isinstance(name, str) and (name in known or _is_class(name, Module)),
            "the type of a module must be a module of sentence_transformers, got "
            f"{shown(name)}; OPERA runs no code that a model's folder names",
        )


def _weights(parts: Any, folder: Path) -> Rules:
    beside = {path.name for path in folder.glob("*.safetensors")}
    for name in parts.values() if isinstance(parts, dict) else [parts]:
        yield (
            isinstance(name, str) and name in beside,
            f"weights must be .safetensors files in the same folder, got {shown(name)}",
        )


def _arguments(content: dict[str, Any]) -> Rules:
    rule = "a model may not set this argument; take it out of the file"
    for key, values in content.items():
        yield key in TRANSFORMER_ARGUMENTS | LOADERS, f"{shown(key)}: {rule}"
        if key in LOADERS:
            yield isinstance(values, dict), f"{key}: must be an object, got {shown(values)}"
            for name, value in values.items():
                fine = name in LOADER_ARGUMENTS and not isinstance(value, dict | list)
                yield fine, f"{key}: {shown(name)}: {rule}"
    modalities = content.get("modality_config")
    for entry in modalities.values() if isinstance(modalities, dict) else ():
        method = entry.get("method", "") if isinstance(entry, dict) else ""
        yield (
            METHODS.fullmatch(str(method)) is not None,
            f"modality_config: the method must be forward or get_..._features, got {shown(method)}",
        )


def _adapter(content: dict[str, Any]) -> Rules:
    """Matrices of peft that are saved by themselves, and the model that they are added to."""
    kind, base = content.get("peft_type"), content.get("base_model_name_or_path")
    yield (
        kind == "LORA" and not content.get("megatron_config"),
        f"must be plain LoRA, got {shown(kind)}; merge it with its model, and use that",
    )
    home = Path(base) if isinstance(base, str) and Path(base).is_dir() else _cached(base)
    if home is not None:
        yield (
            not os.path.lexists(home / ADAPTER_CONFIG),
            f"base_model_name_or_path: must be a whole model, got {shown(base)}",
        )
        check_model_folder(home)


def _entries(content: Any) -> Rules:
    """Keys that no file may use in its way, at any depth."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        if key == "quantization_config":
            yield (
                not value,
                f"{key}: quantised weights cannot be loaded; use the model they were made from",
            )
        if IMPLEMENTATIONS.fullmatch(str(key)):
            for name in value.values() if isinstance(value, dict) else [value]:
                yield (
                    name in (None, "eager", "sdpa"),
                    f"{key}: a model may ask for eager or sdpa, got {shown(name)}; other "
                    "implementations can be code from the hub. Take it out of the file; the "
                    "setting attn_implementation is yours",
                )
        elif isinstance(value, dict | list):
            yield from _entries(value)


def _cached(name: Any) -> Path | None:
    """Return the folder of a model that huggingface_hub has downloaded before."""
    try:
        found = try_to_load_from_cache(name, "config.json")
    except (ValueError, TypeError):  # no name of a repository
        return None
    return Path(found).parent if isinstance(found, str) else None


def _parsed(path: Path) -> Any:
    try:  # as the library reads it, which takes NaN and the last of equal keys
        return json.loads(read_text(path))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not JSON") from None


def _is_class(name: Any, kind: type) -> bool:
    if not str(name).startswith(("sentence_transformers.", "torch.nn.")):
        return False
    try:
        found = import_from_string(name)
    except (ImportError, ValueError, TypeError):
        return False
    return inspect.isclass(found) and issubclass(found, kind)
