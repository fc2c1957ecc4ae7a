"""SPLADE without the logits of all tokens: the highest logit of each word in each text, in blocks.

SPLADE gives a word w in a text the weight ``log(1 + relu(max over tokens t of logit(t, w)))``
(arXiv:2109.10086). sentence-transformers keeps all logits, ``[texts, tokens, words]``. Because the
logarithm and the relu grow with the logit, OPERA takes the maximum first. The gradient of a maximum
belongs to one token, so the backward pass needs only the words with a positive weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn

from opera.core.arrays import slices

WORDS = 2_048
"""Words in a block on a CPU: the logits of a text fit into its cache."""
PROBES = ["", "a", "Two words, and 3 more.", "ünïcode ß 中文 🙂", "long " * 40]
"""Texts to compare OPERA's weights with those of sentence-transformers."""
TOLERANCE = 1e-4

_can: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


class MaxLogits(torch.autograd.Function):
    """The highest logit of each word among the tokens of each text, without the bias of the word.

    ``apply(hidden, weight, ends)`` takes float ``[tokens, dimension]`` of all texts, text by text,
    float ``[words, dimension]``, and the end of each text; it returns float32 ``[texts, words]``,
    -inf for a text without tokens.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, ends: Sequence[int]) -> Tensor:
        """Compute a text and a block of words at a time."""
        # float32 also if autocast computes products in half precision, for the logarithm
        shape = len(ends), len(weight)
        best = torch.full(shape, -torch.inf, dtype=torch.float32, device=hidden.device)
        size = WORDS if hidden.is_cpu else len(weight)
        for text, (start, end) in enumerate(pairwise([0, *ends])):
            for words in slices(len(weight), size) if end > start else ():
                logits = hidden[start:end] @ weight[words].T.to(hidden.dtype)
                best[text, words] = logits.amax(0).float()
        ctx.save_for_backward(hidden, weight)
        ctx.ends = ends
        return best

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Give the gradient of each maximum to its token, which only words with a gradient need."""
        hidden, weight = ctx.saved_tensors
        of_hidden, of_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        for (start, end), of_text in zip(pairwise([0, *ctx.ends]), grad, strict=True):
            words = of_text.nonzero().squeeze(1)
            if end == start or not len(words):
                continue
            logits = hidden[start:end] @ weight[words].T.to(hidden.dtype)
            tokens, factors = start + logits.argmax(0), of_text[words, None]
            of_hidden.index_add_(0, tokens, (factors * weight[words]).to(hidden.dtype))
            of_weight.index_add_(0, words, (factors * hidden[tokens]).to(weight.dtype))
        return of_hidden, of_weight, None


def _decoder(model: Any) -> nn.Linear | None:
    """Return the layer that computes the logits of a SPLADE model; ``None`` for other models."""
    modules = list(model)
    if [type(module) for module in modules] != [Transformer, SpladePooling]:
        return None
    if modules[0].transformer_task != "fill-mask" or modules[1].pooling_strategy != "max":
        return None
    decoder = modules[0].auto_model.get_output_embeddings()
    return decoder if type(decoder) is nn.Linear else None


@contextmanager
def in_blocks(model: Any) -> Iterator[None]:
    """Let a SPLADE model compute its weights in blocks; another model stays as it is."""
    if not _can_run_in_blocks(model):
        yield
        return
    with _replaced(model):
        yield


def _can_run_in_blocks(model: Any) -> bool:
    """Whether blocks give the same weights, up to rounding, for a few texts."""
    if _decoder(model) is None:
        return False
    if model not in _can:
        was_training = model.training
        model.eval()
        with torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
            inputs = {
                name: value.to(model.device)
                for name, value in model.preprocess(PROBES).items()
                if isinstance(value, Tensor)
            }
            expected = model(dict(inputs))["sentence_embedding"]
            with _replaced(model):
                weights = model(dict(inputs))["sentence_embedding"]
        model.train(was_training)
        _can[model] = torch.allclose(weights, expected, rtol=TOLERANCE, atol=TOLERANCE)
    return _can[model]


@contextmanager
def _replaced(model: Any) -> Iterator[None]:
    """Let the decoder pass on its input, and the pooling compute the weights from it."""
    decoder: Any = _decoder(model)
    pooling = model[1]
    if "forward" in vars(decoder):
        yield
        return

    def pool(features: dict[str, Any]) -> dict[str, Any]:
        mask = features["attention_mask"].bool()
        ends = mask.sum(1).cumsum(0).tolist()
        apply: Any = MaxLogits.apply
        best = apply(features["token_embeddings"][mask], decoder.weight, ends)
        if decoder.bias is not None:
            best = best + decoder.bias
        weights = best.relu().log1p()
        if pooling.activation_function == "log1p_relu":
            weights = weights.log1p()
        return {**features, "sentence_embedding": weights}

    decoder.forward, pooling.forward = _pass_on, pool
    try:
        yield
    finally:
        del decoder.forward, pooling.forward


def _pass_on(hidden: Tensor) -> Tensor:
    return hidden
