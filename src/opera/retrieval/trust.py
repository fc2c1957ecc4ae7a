"""A model is read, never run: no pickle, no code that its folder names, only data from the hub."""

from __future__ import annotations

import inspect
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import snapshot_download, try_to_load_from_cache
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

ADAPTER_CONFIG = "adapter_config.json"
CONFIGURATION = re.compile(
    r"modules\.json|config(\..*)?\.json|\w+(-\w+)?_config\.json|.*\.safetensors\.index\.json"
)
"""Files that decide how a model is loaded; also those of versions, ``config.5.0.0.json``."""
PICKLED = re.compile(r"(?:pytorch_)?((?:adapter_)?model).*\.bin")
LOADERS = "model_kwargs|processor_kwargs|config_kwargs|model_args|tokenizer_args|config_args"
"""What ``sentence_bert_config.json`` hands to transformers, under new names and old ones."""
TRANSFORMER_ARGUMENTS = (
    "do_lower_case|document_length|max_seq_length|module_output_name|query_expansion|query_length|"
    "transformer_task|unpad_inputs|modality_config|processing_kwargs"
)
"""What else it may set; no folder of a tokenizer."""
LOADER_ARGUMENTS = (
    "add_bos_token|add_eos_token|add_pooling_layer|attn_implementation|do_lower_case|dtype|"
    "is_causal|is_decoder|model_max_length|padding_side|torch_dtype|truncation_side|use_cache|"
    # without effect, since the libraries or OPERA overrule them:
    "low_cpu_mem_usage|trust_remote_code|use_fast|use_safetensors"
)
"""What these may hold, as plain values. Others place weights, fetch kernels, or read elsewhere."""


def download_model(name: str, organization: str | None) -> Path:
    """Return the folder of a model on the hub, downloaded or from huggingface_hub's cache.

    Raises:
        OSError, ValueError: by huggingface_hub, without such a model or connection.
    """
    short = "/" not in name and name.lower() not in ORIGINAL_TRANSFORMER_MODELS
    full = f"{organization}/{name}" if short else name
    return Path(snapshot_download(full, allow_patterns=DATA_FILES))


class Rule(NamedTuple):
    """What the values of some keys must be.

    Attributes:
        file: matches the name of a file; ``Dense`` stands for the configuration of one.
        keys: matches the keys that lead to a value, with dots between them.
        allows: whether a value is fine.
        says: the rule.
    """

    file: str
    keys: str
    allows: Callable[[Any], bool]
    says: str


def _is_class(kind: type, name: Any) -> bool:
    if not str(name).startswith(("sentence_transformers.", "torch.nn.")):
        return False
    try:
        found = import_from_string(name)
    except (ImportError, ValueError, TypeError):
        return False
    return inspect.isclass(found) and issubclass(found, kind)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: re.fullmatch(pattern, str(value)) is not None


def _never(value: Any) -> bool:
    return False


MODULE = (
    "the type of a module must be a module of sentence_transformers; OPERA runs no code that a "
    "model's folder names"
)
TRANSFORMER = r"sentence_\w+(-\w+)?_config\.json"
NOT_SET = "a model may not set this argument; take it out of the file"
RULES = (
    Rule(r"modules\.json", r"\d+\.type", partial(_is_class, Module), MODULE),
    Rule(r"(router_)?config\.json", r"types\..*", partial(_is_class, Module), MODULE),
    Rule(
        r"wordembedding_config\.json",
        "tokenizer_class",
        partial(_is_class, WordTokenizer),
        "must be a tokenizer of sentence_transformers",
    ),
    Rule(
        "Dense",
        "activation_function",
        lambda name: str(name).startswith("torch.nn.") and _is_class(nn.Module, name),
        "must be a module of torch.nn; sentence_transformers would compute Tanh in its place",
    ),
    Rule(
        r".*\.index\.json",
        r"weight_map(\..*)?",
        lambda name: isinstance(name, dict) or _matches(r"[^/\\]+\.safetensors")(name),
        "weights must be .safetensors files in the same folder",
    ),
    Rule(TRANSFORMER, f"({LOADERS})", lambda value: isinstance(value, dict), "must be an object"),
    Rule(TRANSFORMER, rf"(?!({LOADERS}|{TRANSFORMER_ARGUMENTS})(\.|\Z)).*", _never, NOT_SET),
    Rule(TRANSFORMER, rf"({LOADERS})\.(?!({LOADER_ARGUMENTS})\Z).*", _never, NOT_SET),
    Rule(TRANSFORMER, rf"({LOADERS})\.({LOADER_ARGUMENTS})", _is_plain, NOT_SET),
    Rule(
        TRANSFORMER,
        r"modality_config\..*\.method",
        _matches(r"forward|get_\w+_features"),
        "the method must be forward or get_..._features",
    ),
    Rule(
        ADAPTER_CONFIG,
        "peft_type",
        _matches("LORA"),
        "must be plain LoRA; merge it with its model, and use that",
    ),
    Rule(ADAPTER_CONFIG, "megatron_config", operator.not_, "must be plain LoRA, without it"),
    Rule(
        ".*",
        r"(.*\.)?quantization_config",
        operator.not_,
        "quantised weights cannot be loaded; use the model they were made from",
    ),
    Rule(
        ".*",
        r"(.*\.)?_?(attn|experts)_implementation(\..*)?",
        lambda value: isinstance(value, dict) or value in (None, "eager", "sdpa"),
        "a model may ask for eager or sdpa; other implementations can be code from the hub. Take "
        "it out of the file; the setting attn_implementation is yours",
    ),
)
"""No code that a file names is run, and no argument that it sets decides how it is loaded."""


def check_model_folder(folder: Path, known: Iterable[str] = ()) -> None:
    """Refuse a folder that asks for code of others or holds weights as pickles only.

    Args:
        folder: as sentence-transformers or transformers saves a model.
        known: classes beyond those of sentence-transformers that its modules may be of.

    Raises:
        ModelError: naming the file, the rule and the value.
    """
    for path in _files(folder):
        if (found := kind_of_place(path)) not in ("a file", None):  # opening a pipe would wait
            raise ModelError(f"{path}: must be a file, but is {found}")
        if found is not None:
            check_readable(path)
        pickled = PICKLED.match(path.name)
        if pickled and not any(path.parent.glob(f"{pickled[1]}*.safetensors")):
            raise ModelError(
                f"{path}: weights must be .safetensors, and this is a pickle, which may run code; "
                "if you trust it, load the model with sentence_transformers and save it again with "
                "save_pretrained"
            )
        if CONFIGURATION.fullmatch(path.name):
            _check_configuration(path, known)


def _check_configuration(path: Path, known: Iterable[str]) -> None:
    try:  # as the library reads it, which takes NaN and the last of equal keys
        content = json.loads(read_text(path))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not JSON") from None
    listed = isinstance(content, list) and all(isinstance(entry, dict) for entry in content)
    if path.name == "modules.json" and not listed:
        raise ModelError(f"{path}: must be a list of objects, one per module")
    if path.name == ADAPTER_CONFIG and not isinstance(content, dict):
        raise ModelError(f"{path}: must be an object")
    if _is_plain(content):
        return  # its loader says what is wrong with it
    if path.name == ADAPTER_CONFIG:
        content.setdefault("peft_type", None)
    names = [path.name, "Dense"] if "in_features" in content else [path.name]
    rules = [rule for rule in RULES if any(re.fullmatch(rule.file, name) for name in names)]
    for keys, value in _entries(content):
        for rule in rules:
            if not re.fullmatch(rule.keys, keys, re.DOTALL):
                continue
            if not (str(value) in known or rule.allows(value)):
                must, then, advice = rule.says.partition("; ")
                raise ModelError(f"{path}: {shown(keys)}: {must}, got {shown(value)}{then}{advice}")
    if path.name == ADAPTER_CONFIG:
        _check_base(path, content.get("base_model_name_or_path"))


def _entries(content: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a file with the keys that lead to it."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield f"{before}{key}", value
        if not _is_plain(value):
            yield from _entries(value, f"{before}{key}.")


def _check_base(path: Path, base: Any) -> None:
    """Check the model that matrices of peft are added to, as far as it is on this machine."""
    home = Path(str(base))
    if not home.is_dir():
        try:
            config = try_to_load_from_cache(str(base), "config.json")
        except ValueError:  # no name of a repository
            return
        if not isinstance(config, str):
            return
        home = Path(config).parent
    if os.path.lexists(home / ADAPTER_CONFIG):
        rule = "base_model_name_or_path: must be a whole model"
        raise ModelError(f"{path}: {rule}, got {shown(base)}")
    check_model_folder(home)


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
