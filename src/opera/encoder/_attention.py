"""Attention over packed texts on a CPU: torch computes the matrix products, and numba the rest.

A packed sequence holds several texts without padding. Texts of similar length form a block. Scores
exist for one block at a time, and backward recomputes them, like flash attention. So memory grows
linearly with the tokens. With dropout, torch's attention on CPUs would keep all scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from opera.core.arrays import slices, use_torch_threads
from opera.core.processor import processor_defaults
from opera.encoder import _kernels as kernels
from opera.encoder._kernels import as_array

PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""The types that the kernels read."""
SMALL = 4_096
"""Up to this size, torch's dropout is as fast."""


def threshold_and_key(rate: float) -> tuple[np.uint32, np.uint32]:
    """Return the threshold of a dropout rate, and a random key from torch's generator."""
    if rate == 0:
        return np.uint32(0), np.uint32(0)
    return np.uint32(min(rate * 2**32, 2**32 - 1)), np.uint32(torch.randint(2**32, ()).item())


class HashedDropout(nn.Dropout):
    """``torch.nn.Dropout`` that stores no mask on a CPU: forward and backward compute it by a hash.

    The key of the hash is a number from torch's generator, so a restored generator repeats the
    mask.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop numbers with probability ``p`` in training; scale the rest by 1 / (1 - p)."""
        supported = input.device.type == "cpu" and input.dtype in PRECISIONS
        if not self.training or not 0 < self.p < 1 or not supported or input.numel() <= SMALL:
            return super().forward(input)
        return _Dropped.apply(input, *threshold_and_key(self.p))  # type: ignore[no-untyped-call]


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, threshold: np.uint32, key: np.uint32) -> Tensor:
        ctx.threshold, ctx.key = threshold, key
        return _drop(numbers, threshold, key)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _drop(gradient, ctx.threshold, ctx.key), None, None


def _drop(numbers: Tensor, threshold: np.uint32, key: np.uint32) -> Tensor:
    numbers = numbers.contiguous()
    out = torch.empty_like(numbers)
    use_torch_threads()
    rows = (as_array(tensor).reshape(-1, numbers.shape[-1]) for tensor in (numbers, out))
    kernels.drop(*rows, threshold, key)
    return out


NAME = "opera_packed"
"""Value of ``attn_implementation`` while a model reads packed texts."""
BLOCK_TOKENS = 4_096
"""Most tokens of a block, with padding, unless one text has more."""
BLOCK_SCORES = 2**21
"""Most scores to compute at once, unless one head of one text has more."""
SIMILAR = 1.125
"""The longest text of a block has at most this many times the tokens of the shortest, or 8 more."""

UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments that change the result, and that packed attention does not support."""


class Pack(NamedTuple):
    """The positions of texts in a packed sequence.

    Attributes:
        starts: int64 ``[texts]``, the first token of each text.
        lengths: int32 ``[texts]``, the tokens of each text.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, bounds: Tensor) -> Pack:
        """Create a pack (texts in one row, without padding) from bounds, int32 ``[texts + 1]``."""
        offsets = bounds.numpy().astype(np.int64)
        return cls(offsets[:-1], np.diff(offsets).astype(np.int32))

    @property
    def rows(self) -> slice:
        """The tokens of the texts."""
        return slice(int(self.starts[0]), int(self.starts[-1] + self.lengths[-1]))

    @property
    def is_uniform(self) -> bool:
        """Whether all texts have the same length."""
        return bool(self.lengths.min() == self.lengths.max())

    def by_text(self, tensor: Tensor) -> Tensor:
        """View ``[texts * k, ...]`` as ``[texts, k, ...]``."""
        return tensor.view(len(self.lengths), -1, *tensor.shape[1:])

    def blocks(self) -> Iterator[Pack]:
        """Cut the texts into blocks of similar length, without a change of order."""
        first = 0
        while first < len(self.lengths):
            shortest = longest = int(self.lengths[first])
            stop = first + 1
            while stop < len(self.lengths):
                length = int(self.lengths[stop])
                low, high = min(shortest, length), max(longest, length)
                if high > max(SIMILAR * low, low + 8) or high * (stop + 1 - first) > BLOCK_TOKENS:
                    break
                shortest, longest, stop = low, high, stop + 1
            yield Pack(self.starts[first:stop], self.lengths[first:stop])
            first = stop


class AttentionSettings(NamedTuple):
    """The parameters of attention.

    Attributes:
        is_causal: whether a token attends only to itself and earlier tokens.
        scale: multiplies the scores.
        threshold: dropout rate times 2^32.
        key: seed of the dropout mask.
    """

    is_causal: bool
    scale: np.float32
    threshold: np.uint32
    key: np.uint32


class PackedAttention(torch.autograd.Function):
    """Attention within each text, with dropout.

    Tensors are ``[tokens, heads, d]``. Keys and values may have fewer heads than queries, which
    then share them.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, pack: Pack, settings: AttentionSettings
    ) -> Tensor:
        """Compute attention block by block."""
        out = query.new_empty((*query.shape[:2], value.shape[-1]))
        log_sums, group, first_row = [], query.shape[1] // key.shape[1], 0
        for block in pack.blocks():
            queries, keys, values = _gathered(block, (query, 1), (key, group), (value, group))
            lengths, mixed = np.repeat(block.lengths, query.shape[1]), torch.empty_like(values)
            sums = np.zeros(queries.shape[:2], np.float32)
            for part in _parts(queries):
                scores = torch.bmm(queries[part], keys[part].transpose(1, 2))
                arrays = (as_array(scores), sums[part], lengths[part])
                kernels.softmax_with_dropout(
                    *arrays, *settings, first_row + part.start * queries.shape[1]
                )
                torch.bmm(scores, values[part], out=mixed[part])
            _scatter(block.by_text(mixed), block, out)
            log_sums.append(sums)
            first_row += queries.shape[0] * queries.shape[1]
        ctx.save_for_backward(query, key, value, out)
        ctx.pack, ctx.settings, ctx.log_sums = pack, settings, log_sums
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Recompute the scores block by block, and propagate the gradient."""
        query, key, value, out = ctx.saved_tensors
        gradient = gradient.contiguous()
        totals = (gradient.float() * out.float()).sum(-1, keepdim=True)
        into_query, into_key, into_value = (
            torch.empty_like(tensor) for tensor in (query, key, value)
        )
        group, first_row = query.shape[1] // key.shape[1], 0
        use_torch_threads()
        for block, sums in zip(ctx.pack.blocks(), ctx.log_sums, strict=True):
            queries, keys, values, above, total = _gathered(
                block, (query, 1), (key, group), (value, group), (gradient, 1), (totals, 1)
            )
            lengths, in_total = np.repeat(block.lengths, query.shape[1]), total[:, :, 0].numpy()
            to_queries, to_keys, to_values = (
                torch.empty_like(tensor) for tensor in (queries, keys, values)
            )
            for part in _parts(queries):
                scores = torch.bmm(queries[part], keys[part].transpose(1, 2))
                slopes = torch.bmm(above[part], values[part].transpose(1, 2))
                arrays = (
                    as_array(scores),
                    as_array(slopes),
                    sums[part],
                    in_total[part],
                    lengths[part],
                )
                kernels.softmax_with_dropout_backward(
                    *arrays, *ctx.settings, first_row + part.start * queries.shape[1]
                )
                torch.bmm(scores.transpose(1, 2), above[part], out=to_values[part])
                torch.bmm(slopes, keys[part], out=to_queries[part])
                torch.bmm(slopes.transpose(1, 2), queries[part], out=to_keys[part])
            for blocks, into in (
                (to_queries, into_query),
                (to_keys, into_key),
                (to_values, into_value),
            ):
                _scatter(block.by_text(blocks), block, into)
            first_row += queries.shape[0] * queries.shape[1]
        return into_query, into_key, into_value, None, None


def attended_by_torch(
    query: Tensor, key: Tensor, value: Tensor, pack: Pack, settings: AttentionSettings
) -> Tensor:
    """Attend within each text by torch's attention, without dropout or gradients."""
    out, heads = query.new_empty((*query.shape[:2], value.shape[-1])), query.shape[1]
    for block in pack.blocks():
        queries, keys, values = (
            _by_head(block, tensor, heads // tensor.shape[1]) for tensor in (query, key, value)
        )
        mask = None  # causal attention never reaches the padding
        if not (settings.is_causal or block.is_uniform):
            lengths = torch.from_numpy(block.lengths)[:, None, None, None]
            mask = torch.arange(queries.shape[2]) < lengths
        mixed = functional.scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=settings.is_causal, scale=float(settings.scale)
        )
        _scatter(mixed, block, out)
    return out


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within each text of a pack; without ``cu_seq_lens_q``, call torch's attention.

    Shapes follow transformers' ``AttentionInterface``: query ``[1, heads, tokens, d]``, result
    ``[1, tokens, heads, d]``.

    Raises:
        ValueError: for a mask or an unsupported variant of attention.
    """
    bounds = options.get("cu_seq_lens_q")
    if bounds is None:
        options |= {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    unsupported = [name for name in UNSUPPORTED if options.get(name) is not None]
    if unsupported or attention_mask is not None:
        raise ValueError(f"packed attention does not support {', '.join(unsupported) or 'a mask'}")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    settings = AttentionSettings(bool(causal), np.float32(scale), *threshold_and_key(dropout))
    use_torch_threads()
    # With rotary positions, queries and keys are float32 and values are in half precision. Backward
    # has no autocast, so all get one type.
    dtype = value.dtype if value.dtype in PRECISIONS else torch.float32
    queries, keys, values = (
        tensor[0].transpose(0, 1).to(dtype).contiguous() for tensor in (query, key, value)
    )
    attended: Tensor
    torch_is_faster = PRECISIONS[dtype] in processor_defaults().torch_attention
    if torch_is_faster and dropout == 0 and not torch.is_grad_enabled():
        attended = attended_by_torch(queries, keys, values, Pack.of(bounds), settings)
    else:
        attended = PackedAttention.apply(queries, keys, values, Pack.of(bounds), settings)  # type: ignore[no-untyped-call]
    return attended[None].to(value.dtype), None


def packed_mask(*args: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return no mask for a pack, which has bounds instead, and torch's mask for padded texts."""
    if attention_mask is None:
        return None
    return sdpa_mask(*args, attention_mask=attention_mask, **options)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)


def _by_head(block: Pack, packed: Tensor, group: int) -> Tensor:
    """Return the texts of a block from ``[tokens, heads, d]`` as ``[texts, heads * group, L, d]``.

    A shorter text is padded with its last token; no result depends on the padding.
    """
    if block.is_uniform:
        texts = block.by_text(packed[block.rows])
    else:
        starts, lengths = (torch.from_numpy(numbers).long()[:, None] for numbers in block)
        texts = packed[starts + torch.minimum(torch.arange(int(lengths.max())), lengths - 1)]
    by_head = texts.transpose(1, 2)
    return by_head if group == 1 else by_head.repeat_interleave(group, 1)


def _gathered(block: Pack, *tensors: tuple[Tensor, int]) -> list[Tensor]:
    """Return the texts of a block as contiguous ``[texts * heads * group, L, d]``; do not change
    them, because they may share memory with the pack.
    """
    return [
        _by_head(block, *tensor_and_group).flatten(0, 1).contiguous()
        for tensor_and_group in tensors
    ]


def _scatter(by_head: Tensor, block: Pack, packed: Tensor) -> None:
    """Copy the texts of a block, ``[texts, heads * group, L, d]``, back to the pack, and sum over
    heads that share keys and values.
    """
    texts, lengths = by_head.transpose(1, 2), torch.from_numpy(block.lengths)
    if block.is_uniform:
        texts = texts.flatten(0, 1)
    else:
        texts = texts[torch.arange(texts.shape[1]) < lengths[:, None]]
    heads, width = packed.shape[1:]
    group = texts.shape[1] // heads
    packed[block.rows] = texts if group == 1 else texts.view(-1, heads, group, width).float().sum(2)


def _parts(queries: Tensor) -> Iterator[slice]:
    """Cut units into slices whose scores fit into the processor's caches."""
    units, width = queries.shape[:2]
    return slices(units, max(1, BLOCK_SCORES // width**2))
