"""Whether a loaded model is whole: libraries fill what is missing with random numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import modeling_utils

from opera.core.arrays import normalise
from opera.core.errors import ModelError
from opera.core.terminal import shown

PROBE = ["a", "caf\u00e9 \u2603 \U0001f600 q\u0142x 1,234"]
"""A plain text, and one with characters that few vocabularies have."""
LARGEST = 1e15
"""Weights in use stay below 1e4; float32 cannot hold the squares of values above 1.8e19."""
FEWEST_WORDS = 0.1
"""Per row of the weights: without the tokenizer's file, libraries know special tokens alone."""

_ONE_AT_A_TIME = threading.RLock()
"""While transformers loads a model, it changes torch's default type for all threads."""


@contextmanager
def loading_model() -> Iterator[list[str]]:
    """Load transformers in the block, one thread at a time; yields the weights that files lack."""
    names: list[str] = []

    def collect(*arguments: Any, **others: Any) -> None:
        names.extend(sorted(others["loading_info"].missing_keys))
        report(*arguments, **others)

    with _ONE_AT_A_TIME, torch.inference_mode(False):
        report = modeling_utils.log_state_dict_report
        modeling_utils.log_state_dict_report = collect
        try:
            yield names
        finally:
            modeling_utils.log_state_dict_report = report


def check_model(model: SentenceTransformer, missing: list[str], place: str) -> None:
    """Refuse a model that is not whole, or cannot encode a text, which raises errors of any type.

    Takes 1 ms per million parameters, and two texts per role. ``missing`` are names of weights that
    its files lack, ``place`` is what messages start with.

    Raises:
        ModelError: for weights that are missing, no numbers or far from those of any model.
    """
    check_numbers(model, place)
    _check_vocabulary(model, place)
    _try_out(model, place)
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
        given = {k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()}
        total = total + model(given, task=role)["sentence_embedding"].float().sum()
    total.backward()
    unused = [
        name for name, part in model.named_parameters() if part.requires_grad and part.grad is None
    ]
    for part in model.parameters():
        part.grad = None
    model.train(was_training)
    return unused


def check_numbers(model: nn.Module, place: str) -> None:
    """Refuse weights that are no numbers, or so large that embeddings overflow.

    Raises:
        ModelError: naming the weights.
    """
    for name, weight in model.named_parameters():
        if not weight.numel():
            continue
        low, high = torch.aminmax(weight.detach())
        if not -LARGEST < float(low) <= float(high) < LARGEST:
            raise ModelError(
                f"{place}: the weights {shown(name)} hold values that are no numbers, or above "
                f"{LARGEST:.0e}; use another copy of it"
            )


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


def _try_out(model: SentenceTransformer, place: str) -> None:
    """Encode two texts: a folder whose configuration is wrong may fail only here."""
    expected = (len(PROBE), model.get_embedding_dimension())
    for encode in (model.encode_query, model.encode_document):
        found = encode(PROBE, show_progress_bar=False)
        if found.shape != expected:
            shapes = f"{list(found.shape)}, and not {list(expected)}"
            raise ValueError(f"its embeddings of two texts have the shape {shapes}")
        reads_all = hasattr(
            model[0], "auto_model"
        )  # others may know no token of a text, whose embedding is then zero
        if normalise(found).size or (reads_all and not found.any()):
            raise ModelError(
                f"{place}: its embeddings are too long or too short to be compared; use another "
                "copy of it"
            )
