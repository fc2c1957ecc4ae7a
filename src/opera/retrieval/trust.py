"""A model is read, never run: no pickle, no code that its folder names, and from the hub nothing but data files."""

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
"""What is downloaded from a repository on the hub: configuration, vocabulary and weights, no code and no pickle."""
LISTS_OF_MODULES = (
    "modules.json",
    "router_config.json",
    "config.json",
)  # the last one in folders of old routers
ADAPTER_CONFIG = "adapter_config.json"
SAFE_LOADING = {"use_safetensors": True, "weights_only": True}
"""What every loader of transformers is told; arguments of the caller go before those of a model's files."""

TRANSFORMER_ARGUMENTS = frozenset(
    {
        "do_lower_case", "document_length", "max_seq_length", "modality_config", "module_output_name",
        "processing_kwargs", "query_expansion", "query_length", "transformer_task", "unpad_inputs",
    }
)  # fmt: skip
"""What ``sentence_bert_config.json`` may set, beside what follows. Not: another folder for the tokenizer."""
LOADER_ARGUMENTS = {
    "model_kwargs": frozenset({"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype"}),
    "processor_kwargs": frozenset(
        {
            "add_bos_token",
            "add_eos_token",
            "do_lower_case",
            "model_max_length",
            "padding_side",
            "truncation_side",
        }
    ),
    "config_kwargs": frozenset({"attn_implementation", "is_causal", "is_decoder", "use_cache"}),
}
"""Keyword arguments that a model may set for transformers. Others place weights, fetch kernels, or read elsewhere."""
HARMLESS = frozenset({"low_cpu_mem_usage", "trust_remote_code", "use_fast", "use_safetensors"})
"""Arguments that models in use set and that have no effect here: the libraries or OPERA overrule them."""
OLD_NAMES = {
    "model_args": "model_kwargs",
    "tokenizer_args": "processor_kwargs",
    "config_args": "config_kwargs",
}
TRANSFORMER_CONFIG = re.compile(r"sentence_\w+(-\w+)?_config\.json")
CONFIGURATION = re.compile(r"config(\..*)?\.json|\w+(-\w+)?_config\.json")
"""Names of files that decide how a model is loaded; also those of versions, ``config.5.0.0.json``."""
PICKLED = re.compile(r"(?:pytorch_)?((?:adapter_)?model).*\.bin")
IMPLEMENTATIONS = re.compile(r"_?(attn|experts)_implementation")
METHODS = re.compile(r"forward|get_\w+_features")


def download_model(
    name: str, organization: str | None = SentenceTransformer.default_huggingface_organization
) -> Path:
    """Return the folder of a model on the hub, downloaded or from huggingface_hub's cache.

    Args:
        name: ``OWNER/NAME``, or a name alone.
        organization: the owner of models that are given by name alone.

    Raises:
        OSError, ValueError: by huggingface_hub, if there is no such model or the hub cannot be reached.
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
        check_readable(path.parent)
        if path.exists():
            check_readable(path)
        if (found := kind_of_place(path)) not in (
            "a file",
            None,
        ):  # opening a pipe would wait for ever
            raise ModelError(f"{path}: must be a file, but is {found}")
        for name in _module_classes(path) if path.name in LISTS_OF_MODULES else ():
            if not isinstance(name, str) or (name not in known and not _is_module(name)):
                raise ModelError(
                    f"{path}: the type of a module must be a module of sentence_transformers, got {shown(name)}; "
                    "OPERA runs no code that a model's folder names"
                )
        if path.name.endswith(".safetensors.index.json"):
            _check_index(path)
        if CONFIGURATION.fullmatch(path.name):
            _check_configuration(path)
        pickled = PICKLED.match(path.name)
        if pickled and not any(path.parent.glob(f"{pickled[1]}*.safetensors")):
            raise ModelError(
                f"{path}: weights must be .safetensors, and this is a pickle, which may run code; if you trust it, "
                "load the model with sentence_transformers and save it again with save_pretrained"
            )


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, also behind links, each folder once."""
    seen = set()
    for home, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        seen.add(os.path.realpath(home))
        folders[:] = sorted(
            name for name in folders if os.path.realpath(Path(home, name)) not in seen
        )
        yield from (Path(home, name) for name in sorted(names))


def _refuse(error: OSError) -> None:
    raise ModelError(f"{place(error.filename)}: cannot be read ({error.strerror})")


def _module_classes(path: Path) -> list[Any]:
    """Return the classes that ``modules.json`` lists, or that the configuration of a router does."""
    content = _parsed(path)
    if path.name == "modules.json":
        if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
            raise ModelError(f"{path}: must be a list of objects, one per module")
        return [entry.get("type") for entry in content]
    types = content.get("types", {}) if isinstance(content, dict) else {}
    return list(types.values()) if isinstance(types, dict) else []


def _check_configuration(path: Path) -> None:
    """Refuse what a configuration may not set: everything that runs code, fetches it, or reads or writes elsewhere."""
    content = _parsed(path)
    if not isinstance(content, dict):
        return  # its loader says what is wrong with it
    if TRANSFORMER_CONFIG.fullmatch(path.name):
        _check_arguments(path, content)
    if path.name == ADAPTER_CONFIG:
        _check_adapter(path, content)
    if path.name == "wordembedding_config.json" and not _is_module(
        str(content.get("tokenizer_class")), WordTokenizer
    ):
        found = shown(content.get("tokenizer_class"))
        raise ModelError(
            f"{path}: tokenizer_class: must be a tokenizer of sentence_transformers, got {found}"
        )
    if "in_features" in content and "activation_function" in content:  # of a Dense
        name = content["activation_function"]
        if (
            not isinstance(name, str)
            or not name.startswith("torch.nn.")
            or not _is_module(name, nn.Module)
        ):
            raise ModelError(
                f"{path}: activation_function: must be a module of torch.nn, got {shown(name)}; sentence_transformers "
                "would compute Tanh in its place"
            )
    for key, value in _entries(content):
        if key == "quantization_config" and value:
            raise ModelError(
                f"{path}: {key}: quantised weights cannot be loaded; use the model they were made from"
            )
        if (
            IMPLEMENTATIONS.fullmatch(key)
            and value not in (None, "eager", "sdpa")
            and not isinstance(value, dict)
        ):
            raise ModelError(
                f"{path}: {key}: a model may ask for eager or sdpa, got {shown(value)}; other implementations can be "
                "code from the hub. Take it out of the file; the setting attn_implementation is yours"
            )


def _check_arguments(path: Path, content: dict[str, Any]) -> None:
    for key, values in content.items():
        name = OLD_NAMES.get(key, key)
        if name not in LOADER_ARGUMENTS:
            if key not in TRANSFORMER_ARGUMENTS:
                raise ModelError(
                    f"{path}: {shown(key)}: a model may not set this argument; take it out of the file"
                )
            continue
        if not isinstance(values, dict):
            raise ModelError(f"{path}: {key}: must be an object, got {shown(values)}")
        for argument, value in values.items():
            if argument not in LOADER_ARGUMENTS[name] | HARMLESS or isinstance(value, dict | list):
                allowed = ", ".join(sorted(LOADER_ARGUMENTS[name]))
                raise ModelError(
                    f"{path}: {key}: {shown(argument)}: a model may not set this argument (it may set plain values of "
                    f"{allowed}); take it out of the file"
                )
    modalities = content.get("modality_config")
    for entry in modalities.values() if isinstance(modalities, dict) else ():
        method = entry.get("method", "") if isinstance(entry, dict) else ""
        if not METHODS.fullmatch(str(method)):
            raise ModelError(
                f"{path}: modality_config: the method must be forward or get_..._features, got {shown(method)}"
            )


def _check_adapter(path: Path, content: dict[str, Any]) -> None:
    """Check matrices of peft that are saved by themselves, and the folder of the model that they are added to."""
    kind, base = content.get("peft_type"), content.get("base_model_name_or_path")
    if kind != "LORA" or content.get("megatron_config"):
        raise ModelError(
            f"{path}: must be plain LoRA, got {shown(kind)}; merge it with its model, and use that"
        )
    home = Path(base) if isinstance(base, str) and Path(base).is_dir() else _cached(base)
    if home is not None:
        if os.path.lexists(home / ADAPTER_CONFIG):
            raise ModelError(
                f"{path}: base_model_name_or_path: must be a whole model, got {shown(base)}"
            )
        check_model_folder(home)


def _cached(name: Any) -> Path | None:
    """Return the folder of a model that huggingface_hub has downloaded before."""
    try:
        found = try_to_load_from_cache(name, "config.json")
    except (ValueError, TypeError):  # no name of a repository
        return None
    return Path(found).parent if isinstance(found, str) else None


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a parsed file with its value, at any depth; of implementations per part, these parts."""
    parts: list[tuple[str, Any]] = [("", content)]
    while parts:
        name, value = parts.pop()
        if name:
            yield name, value
        if isinstance(value, dict):
            inner = name if IMPLEMENTATIONS.fullmatch(name) else None
            parts.extend((inner or key, part) for key, part in value.items())
        elif isinstance(value, list):
            parts.extend((name, part) for part in value if isinstance(part, dict | list))


def _parsed(path: Path) -> Any:
    try:
        return json.loads(
            read_text(path)
        )  # as the library reads it, which takes NaN and the last of equal keys
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not JSON") from None


def _check_index(path: Path) -> None:
    """Check that the list of the parts of large weights names files of that format in that folder."""
    content = _parsed(path)
    parts = content.get("weight_map") if isinstance(content, dict) else None
    beside = {file.name for file in path.parent.glob("*.safetensors")}
    for name in parts.values() if isinstance(parts, dict) else [parts]:
        if not isinstance(name, str) or name not in beside:
            raise ModelError(
                f"{path}: weights must be .safetensors files in the same folder, got {shown(name)}"
            )


def _is_module(name: str, kind: type = Module) -> bool:
    if not name.startswith(("sentence_transformers.", "torch.nn.")):
        return False
    try:
        found = import_from_string(name)
    except (ImportError, ValueError, TypeError):
        return False
    return inspect.isclass(found) and issubclass(found, kind)
