"""Make a saved folder readable by those that read ONNX files: older sentence-transformers, and servers.

sentence-transformers 6 names its modules and the pooling in a way that sentence-transformers 5, the newest that
optimum-onnx can be installed with, and text-embeddings-inference do not know. All three read the names written here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from opera.core.strict_json import read_json
from opera.retrieval.models import lengths_of
from opera.retrieval.prompts import ROLES

MODULES_FILE = "modules.json"
TOKENIZER_FILE = "tokenizer_config.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""Names of sentence-transformers' kinds of pooling, and the flags that say the same."""
NO_LIMIT = 1_000_000
"""Tokenizers without a limit name one above this."""
KNOWN_EVERYWHERE = ("Transformer", "Pooling", "Normalize", "Dense")


def save_portable(model: SentenceTransformer, folder: Path) -> None:
    """Save a model without a card, under the names that all readers know."""
    model.save_pretrained(str(folder), create_model_card=False)
    modules = read_json(folder / MODULES_FILE)
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        if kind in KNOWN_EVERYWHERE:
            module["type"] = f"sentence_transformers.models.{kind}"
        if kind == "Pooling":
            _name_pooling(folder / module["path"] / "config.json")
    _write(folder / MODULES_FILE, modules)
    _name_tokenizer(folder / TOKENIZER_FILE)
    _name_length(model, folder / TRANSFORMER_FILE)


def _name_pooling(file: Path) -> None:
    values = read_json(file)
    modes = (
        values["pooling_mode"]
        if isinstance(values["pooling_mode"], list)
        else [values["pooling_mode"]]
    )
    flags = {flag: mode in modes for mode, flag in POOLING_FLAGS.items()}
    _write(
        file,
        {
            "word_embedding_dimension": values["embedding_dimension"],
            **flags,
            "include_prompt": values["include_prompt"],
        },
    )


def _name_tokenizer(file: Path) -> None:
    """Name the class of a tokenizer that is nothing but its file as transformers 4 does, which 5 reads too."""
    values = read_json(file) if file.is_file() else {}
    if values.get("tokenizer_class") == "TokenizersBackend":
        _write(file, {**values, "tokenizer_class": "PreTrainedTokenizerFast"})


def _name_length(model: SentenceTransformer, file: Path) -> None:
    """Name the most tokens of a text, which servers take for queries and documents alike."""
    given = [length for length in lengths_of(model).values() if length is not None]
    longest = max(given) if len(given) == len(ROLES) else model.max_seq_length
    if longest is not None and longest < NO_LIMIT:
        _write(file, {**read_json(file), "max_seq_length": longest})


def _write(file: Path, values: Any) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
