"""Whether a loaded model is whole: the library fills what is missing with random numbers and says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers import modeling_utils

from opera.core.errors import ModelError
from opera.core.terminal import shown

PROBE = ["a", "caf\u00e9 \u2603 \U0001f600 q\u0142x 1,234"]
"""A plain text, and one with characters that few vocabularies have."""


@contextmanager
def missing_weights() -> Iterator[list[str]]:
    """Collect the names of the weights that a model's files lack, of the transformers that are loaded in the block."""
    names: list[str] = []
    report = modeling_utils.log_state_dict_report

    def collect(*arguments: Any, **others: Any) -> None:
        names.extend(sorted(others["loading_info"].missing_keys))
        report(*arguments, **others)

    modeling_utils.log_state_dict_report = collect
    try:
        yield names
    finally:
        modeling_utils.log_state_dict_report = report


def check_model(model: SentenceTransformer, missing: list[str], place: str) -> None:
    """Refuse a model that is not whole. Takes 1 ms per million parameters, and two texts per role.

    Args:
        model: the model.
        missing: names of weights that its files lack, as :func:`missing_weights` collects them.
        place: what the messages start with.

    Raises:
        ModelError: for weights that are missing or no numbers, and a vocabulary that does not fit the weights.
        Exception: of any type, by modules that cannot encode a text; a ValueError for embeddings of a wrong shape.
    """
    _check_numbers(model, place)
    _check_vocabulary(model, place)
    _try_out(model)
    if missing:
        _check_missing(model, missing, place)


def unused_parameters(model: SentenceTransformer) -> list[str]:
    """Return the names of the parameters that no embedding depends on, such as those of an unused pooler."""
    was_training = model.training
    model.eval()  # dropout would advance the random state
    for role in ("query", "document"):
        features = model.preprocess(["a"], **({"task": role} if has_routes(model) else {}))
        model({k: v.to(model.device) if hasattr(v, "to") else v for k, v in features.items()})[
            "sentence_embedding"
        ].float().sum().backward()
    unused = [name for name, part in model.named_parameters() if part.requires_grad and part.grad is None]
    for part in model.parameters():
        part.grad = None
    model.train(was_training)
    return unused


def has_routes(model: SentenceTransformer) -> bool:
    """Whether the model encodes queries and documents with different modules."""
    return any(type(module).__name__ == "Router" for module in model)


def _check_numbers(model: SentenceTransformer, place: str) -> None:
    for name, weight in model.named_parameters():
        if weight.numel() and not torch.isfinite(torch.stack(torch.aminmax(weight.detach()))).all():
            raise ModelError(
                f"{place}: the weights {shown(name)} hold values that are no numbers; use another copy of it"
            )


def _check_missing(model: SentenceTransformer, missing: list[str], place: str) -> None:
    """Allow what no embedding depends on, such as a pooler."""
    unused = unused_parameters(model)
    needed = [name for name in missing if not any(other.endswith(f".{name}") for other in unused)]
    if needed:
        raise ModelError(
            f"{place}: its files lack {len(needed):,} of the weights that its configuration asks for, such as "
            f"{shown(needed[0])}; use a whole copy of it"
        )


def _check_vocabulary(model: SentenceTransformer, place: str) -> None:
    """Refuse tokens without a row among the weights; added tokens, which few texts hold, are left to the text."""
    first = model[0]
    if hasattr(first, "auto_model"):
        tokenizer, table = first.tokenizer, first.auto_model.get_input_embeddings()
        added = tokenizer.get_added_vocab() if hasattr(tokenizer, "get_added_vocab") else {}
        words = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
        ids = {word: number for word, number in words.items() if word not in added}
    elif type(first).__name__ == "StaticEmbedding":
        table, ids = first.embedding, first.tokenizer.get_vocab(with_added_tokens=False)
    else:
        return
    if not ids or getattr(table, "weight", None) is None:
        return
    word, highest = max(ids.items(), key=lambda item: item[1])
    if highest >= len(table.weight):
        raise ModelError(
            f"{place}: its vocabulary does not fit its weights: the token {shown(word)} has number {highest:,}, and "
            f"there are {len(table.weight):,} rows; use a whole copy of it"
        )


def _try_out(model: SentenceTransformer) -> None:
    """Encode two texts: a folder whose configuration is wrong may load all the same, and fail only here."""
    expected = (len(PROBE), model.get_embedding_dimension())
    if not expected[1]:
        raise ValueError("its embeddings have no dimension")
    for encode in (model.encode_query, model.encode_document):
        found = encode(PROBE, show_progress_bar=False).shape
        if found != expected:
            raise ValueError(f"its embeddings of two texts have the shape {list(found)}, and not {list(expected)}")
