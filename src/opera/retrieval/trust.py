"""Never run a model's own code: no pickles, no code its files name, only data from the hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import snapshot_download, try_to_load_from_cache
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import ORIGINAL_TRANSFORMER_MODELS

from opera.core.errors import ModelError
from opera.core.files import read_text
from opera.core.terminal import shown

DATA_FILES = ["*.json", "*.jinja", "*.model", "*.safetensors", "*.txt", "artifact.metadata"]
"""Files to download from the hub: configuration (also ColBERT's), vocabulary and weights, no code,
no pickles."""
SAFE_LOADING = {"use_safetensors": True, "weights_only": True}
"""Arguments for every loader; they take precedence over those in a model's files."""

ADAPTER_CONFIG = "adapter_config.json"
CONFIGURATION = re.compile(
    r"modules\.json|config(\..*)?\.json|\w+(-\w+)?_config\.json|.*\.safetensors\.index\.json"
)
"""Files that decide how a model is loaded, with names of versions such as ``config.5.0.0.json``."""
PICKLED = re.compile(r"(?:pytorch_)?((?:adapter_)?model).*\.bin")
LOADERS = "model_kwargs|processor_kwargs|config_kwargs|model_args|tokenizer_args|config_args"
"""Entries of ``sentence_bert_config.json`` that are passed to transformers; new and old names."""
TRANSFORMER_ARGUMENTS = (
    "do_lower_case|document_length|max_seq_length|module_output_name|query_expansion|query_length|"
    "transformer_task|unpad_inputs|modality_config|processing_kwargs"
)
"""Other entries that it may set; the folder of a tokenizer is not among them."""
LOADER_ARGUMENTS = (
    "add_bos_token|add_eos_token|add_pooling_layer|attn_implementation|do_lower_case|dtype|"
    "is_causal|is_decoder|model_max_length|padding_side|torch_dtype|truncation_side|use_cache|"
    # without effect, because the libraries or OPERA overrule them:
    "low_cpu_mem_usage|trust_remote_code|use_fast|use_safetensors"
)
"""Allowed arguments in :data:`LOADERS`, as plain values. Others could read other files, place
weights or download kernels."""


def download_model(name: str, organization: str | None, cached: bool = False) -> Path:
    """Return the folder of a model on the hub, downloaded or from huggingface_hub's cache.

    With ``cached``, nothing is downloaded.

    Raises:
        OSError, ValueError: from huggingface_hub, if the model or the connection is missing.
    """
    short = "/" not in name and name.lower() not in ORIGINAL_TRANSFORMER_MODELS
    full = f"{organization}/{name}" if short and organization is not None else name
    return Path(snapshot_download(full, allow_patterns=DATA_FILES, local_files_only=cached))


class AllowedValues(NamedTuple):
    """The allowed values of some keys, as regular expressions that must match in full.

    Attributes:
        file: the name of a file; ``Dense`` means the configuration of a ``Dense`` module.
        keys: the path of keys to a value, separated by dots.
        allowed: pattern of the value as text; :data:`PARTS` for a non-empty object or list.
        message: the rule, as the error states it.
    """

    file: str
    keys: str
    allowed: str
    message: str


PARTS = "\0"
MODULES = (
    r"sentence_transformers\.([\w.]+\.)?(BoW|CLIPModel|CNN|Dense|Dropout|LSTM|LayerNorm|MLMTransformer|MultiVectorMask|"
    r"Normalize|Pooling|Router|Asym|SparseAutoEncoder|SparseStaticEmbedding|SpladePooling|"
    r"StaticEmbedding|Transformer|WeightedLayerPooling|WordEmbeddings|WordWeights)"
)
MODULE = (
    "the type of a module must be a module of sentence_transformers; OPERA runs no code that a "
    "model's folder names"
)
TRANSFORMER = r"sentence_\w+(-\w+)?_config\.json"
NOT_SET = "a model may not set this argument; remove it from the file"
NEVER = "(?!)"
RULES = (
    AllowedValues(r"modules\.json", r"\d+\.type", MODULES, MODULE),
    AllowedValues(r"(router_)?config\.json", r"types\..*", MODULES, MODULE),
    AllowedValues(
        r"wordembedding_config\.json",
        "tokenizer_class",
        r"sentence_transformers\.[\w.]+Tokenizer(Wrapper)?",
        "must be a tokenizer of sentence_transformers",
    ),
    AllowedValues(
        "Dense",
        "activation_function",
        r"torch\.nn\.([a-z]\w*\.)*[A-Z]\w*",
        "must be a module of torch.nn; sentence_transformers would use Tanh instead",
    ),
    AllowedValues(
        r".*\.index\.json",
        r"weight_map\..*",
        r"[^/\\\0]+\.safetensors",
        "weights must be .safetensors files in the same folder",
    ),
    AllowedValues(TRANSFORMER, f"({LOADERS})", f"|{PARTS}", "must be an object"),
    AllowedValues(
        TRANSFORMER, rf"(?!({LOADERS}|{TRANSFORMER_ARGUMENTS})(\.|\Z)).*", NEVER, NOT_SET
    ),
    AllowedValues(TRANSFORMER, rf"({LOADERS})\.(?!({LOADER_ARGUMENTS})\Z).*", NEVER, NOT_SET),
    AllowedValues(TRANSFORMER, rf"({LOADERS})\.({LOADER_ARGUMENTS})", f"[^{PARTS}]*", NOT_SET),
    AllowedValues(
        TRANSFORMER,
        r"modality_config\..*\.method",
        r"forward|get_\w+_features",
        "the method must be forward or get_..._features",
    ),
    AllowedValues(
        ADAPTER_CONFIG,
        "peft_type",
        "LORA",
        "must be plain LoRA; merge the adapter with its model, and use the merged model",
    ),
    AllowedValues(
        ADAPTER_CONFIG, "megatron_config", "", "must be plain LoRA, without this setting"
    ),
    AllowedValues(
        ".*",
        r"(.*\.)?quantization_config",
        "",
        "OPERA cannot load quantised weights; use the model before quantisation",
    ),
    AllowedValues(
        ".*",
        r"(.*\.)?_?(attn|experts)_implementation(\..*)?",
        f"|eager|sdpa|{PARTS}",
        "must be eager or sdpa, as other implementations can be code from the hub; remove it from "
        "the file, and use the setting attn_implementation instead",
    ),
)
"""With these rules no file can name code that runs, or set an unsafe argument for loading."""


def check_model_folder(folder: Path, known: Iterable[str] = ()) -> None:
    """Refuse a folder that names third-party code or holds weights only as pickles.

    Args:
        folder: as sentence-transformers or transformers saves a model.
        known: allowed classes of modules, in addition to those of sentence-transformers.

    Raises:
        ModelError: with the file, the rule and the value.
        OSError, ValueError: if a configuration cannot be read or is not JSON.
    """
    seen = set[str]()
    for parent, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(parent))  # links may lead back
        folders[:] = [name for name in folders if os.path.realpath(Path(parent, name)) not in seen]
        for path in (Path(parent, name) for name in sorted(names)):
            pickled = PICKLED.match(path.name)
            if pickled and not any(path.parent.glob(f"{pickled[1]}*.safetensors")):
                raise ModelError(
                    f"{path}: weights must be .safetensors, but this is a pickle, which may run "
                    "code; if you trust it, load the model with sentence_transformers and save it "
                    "again with save_pretrained"
                )
            if CONFIGURATION.fullmatch(path.name):
                _check_configuration(path, known)


def check_loaded(model: SentenceTransformer) -> None:
    """Refuse a loaded model whose folder OPERA would refuse, or that does not run in torch.

    Raises:
        ModelError: with the modules and the backend.
    """
    kinds = [f"{type(module).__module__}.{type(module).__name__}" for module in model]
    if model.get_backend() != "torch" or not all(re.fullmatch(MODULES, kind) for kind in kinds):
        raise ModelError(
            "model: must run in torch, with modules of sentence_transformers only, got "
            f"{', '.join(kinds)} in {model.get_backend()}"
        )


def _check_configuration(path: Path, known: Iterable[str]) -> None:
    # as the libraries do, which accept NaN and use the last of equal keys
    content = json.loads(read_text(path))
    if not isinstance(content, dict | list):
        return  # the loader reports the error
    if path.name == ADAPTER_CONFIG and isinstance(content, dict):
        content = {"peft_type": None, **content}
        _check_base(path, content.get("base_model_name_or_path"))
    names = [path.name, "Dense"] if "in_features" in content else [path.name]
    rules = [rule for rule in RULES if any(re.fullmatch(rule.file, name) for name in names)]
    for keys, value in _entries(content):
        text = PARTS if value and isinstance(value, dict | list) else str(value or "")
        for rule in rules:
            matches = re.fullmatch(rule.keys, keys, re.DOTALL)
            if matches and text not in known and not re.fullmatch(rule.allowed, text):
                must, semicolon, advice = rule.message.partition("; ")
                problem = f"{shown(keys)}: {must}, got {shown(value)}"
                raise ModelError(f"{path}: {problem}{semicolon}{advice}")


def _entries(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a file with its path of keys."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield f"{prefix}{key}", value
        if isinstance(value, dict | list):
            yield from _entries(value, f"{prefix}{key}.")


def _check_base(path: Path, base: Any) -> None:
    """Check the base model of a peft adapter, if it is on this machine."""
    folder = Path(str(base))
    if not folder.is_dir():
        config = try_to_load_from_cache(str(base), "config.json")
        folder = Path(config).parent if isinstance(config, str) else folder
    if os.path.lexists(folder / ADAPTER_CONFIG):
        raise ModelError(
            f"{path}: base_model_name_or_path: must be a whole model, not an adapter, got "
            f"{shown(base)}"
        )
    if folder.is_dir():
        check_model_folder(folder)
