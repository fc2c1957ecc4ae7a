"""Attention over packed texts on a CPU: matrix products by torch, everything between them by one
pass of numba.

Several texts stand behind each other in one sequence, without padding. Texts of about the same
length are taken as one block. Scores live for one block only: backward computes them anew, as flash
attention does, so memory grows with the tokens and not with their squares. torch's own attention on
CPUs keeps every score as soon as there is dropout.
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

from opera.encoder import kernels
from opera.encoder.kernels import seen_by_numba, use_torch_threads

SMALL = 4_096
"""Numbers up to which torch's own is as fast."""


def threshold_and_key(rate: float) -> tuple[np.uint32, np.uint32]:
    """Say for a rate of dropout which random numbers to use, by torch's generator: whoever restores
    it repeats them.
    """
    if rate == 0:
        return np.uint32(0), np.uint32(0)
    return np.uint32(min(rate * 2**32, 2**32 - 1)), np.uint32(torch.randint(2**32, ()).item())


class HashedDropout(nn.Dropout):
    """``torch.nn.Dropout`` whose mask on a CPU is hashed, in forward and again in backward; none is
    kept.

    One number of torch's generator decides the mask, so whoever restores the generator repeats it.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop numbers with probability ``p`` while training; scale the others by 1 / (1 - p)."""
        computed_here = input.device.type == "cpu" and input.dtype in (
            torch.float32,
            torch.bfloat16,
        )
        if not self.training or not 0 < self.p < 1 or not computed_here or input.numel() <= SMALL:
            return super().forward(input)
        dropped: Tensor = _Dropped.apply(input, *threshold_and_key(self.p))  # type: ignore[no-untyped-call]
        return dropped


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
    rows = (seen_by_numba(part).reshape(-1, numbers.shape[-1]) for part in (numbers, out))
    kernels.drop(*rows, threshold, key)
    return out


NAME = "opera_packed"
"""Value of ``attn_implementation`` while a model runs packed."""
BLOCK_TOKENS = 4_096
"""Tokens of a block, padding counted, unless one text has more."""
BLOCK_SCORES = 2**21
"""Scores that are computed at once, unless one head of one text has more."""
SIMILAR = 1.125
"""Texts of a block are at most that many times as long as its shortest, or 8 tokens longer."""


UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments of other attention, each of which changes the result."""


class Pack(NamedTuple):
    """Where texts are in a packed sequence.

    Attributes:
        starts: int64 ``[texts]``, where each begins.
        lengths: int32 ``[texts]``, its tokens.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, bounds: Tensor) -> Pack:
        """Read the bounds of texts, int32 ``[texts + 1]``."""
        offsets = bounds.numpy().astype(np.int64)
        return cls(offsets[:-1], np.diff(offsets).astype(np.int32))

    def blocks(self) -> Iterator[Pack]:
        """Cut the texts, in their order, into blocks of about the same length."""
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


class Rule(NamedTuple):
    """How a query looks at keys.

    Attributes:
        is_causal: whether a token sees those before it alone.
        scale: multiplies the scores.
        threshold: rate of dropout times 2^32.
        key: which random numbers.
    """

    is_causal: bool
    scale: np.float32
    threshold: np.uint32
    key: np.uint32


class PackedAttention(torch.autograd.Function):
    """Softmax of products of queries and keys within each text, with dropout, times values.

    Takes and returns ``[tokens, heads, d]``; keys and values may have fewer heads, each for several
    of the queries'.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, pack: Pack, rule: Rule
    ) -> Tensor:
        """Compute block by block."""
        out = query.new_empty((*query.shape[:2], value.shape[-1]))
        log_sums, group, first_row = [], query.shape[1] // key.shape[1], 0
        for block in pack.blocks():
            queries, keys, values = _gathered(block, (query, 1), (key, group), (value, group))
            lengths, mixed = np.repeat(block.lengths, query.shape[1]), torch.empty_like(values)
            sums = np.zeros(queries.shape[:2], np.float32)
            for part in _parts(queries):
                scores = torch.bmm(queries[part], keys[part].transpose(1, 2))
                arrays = (seen_by_numba(scores), sums[part], lengths[part])
                kernels.softmax_with_dropout(
                    *arrays, *rule, first_row + part.start * queries.shape[1]
                )
                torch.bmm(scores, values[part], out=mixed[part])
            _scatter(mixed, block, out)
            log_sums.append(sums)
            first_row += queries.shape[0] * queries.shape[1]
        ctx.save_for_backward(query, key, value, out)
        ctx.pack, ctx.rule, ctx.log_sums = pack, rule, log_sums
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the scores anew, block by block, and send the gradient through them."""
        query, key, value, out = ctx.saved_tensors
        gradient = gradient.contiguous()
        totals = (gradient.float() * out.float()).sum(-1, keepdim=True)
        into_query, into_key, into_value = (torch.empty_like(part) for part in (query, key, value))
        group, first_row = query.shape[1] // key.shape[1], 0
        use_torch_threads()
        for block, sums in zip(ctx.pack.blocks(), ctx.log_sums, strict=True):
            queries, keys, values, above, total = _gathered(
                block, (query, 1), (key, group), (value, group), (gradient, 1), (totals, 1)
            )
            lengths, in_total = np.repeat(block.lengths, query.shape[1]), total[:, :, 0].numpy()
            to_queries, to_keys, to_values = (
                torch.empty_like(part) for part in (queries, keys, values)
            )
            for part in _parts(queries):
                scores = torch.bmm(queries[part], keys[part].transpose(1, 2))
                slopes = torch.bmm(above[part], values[part].transpose(1, 2))
                arrays = (
                    seen_by_numba(scores),
                    seen_by_numba(slopes),
                    sums[part],
                    in_total[part],
                    lengths[part],
                )
                kernels.softmax_with_dropout_backward(
                    *arrays, *ctx.rule, first_row + part.start * queries.shape[1]
                )
                torch.bmm(scores.transpose(1, 2), above[part], out=to_values[part])
                torch.bmm(slopes, keys[part], out=to_queries[part])
                torch.bmm(slopes.transpose(1, 2), queries[part], out=to_keys[part])
            for blocks, into in (
                (to_queries, into_query),
                (to_keys, into_key),
                (to_values, into_value),
            ):
                _scatter(blocks, block, into)
            first_row += queries.shape[0] * queries.shape[1]
        return into_query, into_key, into_value, None, None


def attended_by_torch(query: Tensor, key: Tensor, value: Tensor, pack: Pack, rule: Rule) -> Tensor:
    """Do what :class:`PackedAttention` does without dropout or gradients, block by block through
    torch's attention.

    In float32 it is the faster of the two: products of half precision gain more from the blocks'
    layout.
    """
    out, heads = query.new_empty((*query.shape[:2], value.shape[-1])), query.shape[1]
    for block in pack.blocks():
        copies = _gathered(block, *((part, heads // part.shape[1]) for part in (query, key, value)))
        queries, keys, values = (copy.view(-1, heads, *copy.shape[1:]) for copy in copies)
        behind = None
        if (
            not rule.is_causal and block.lengths.min() < block.lengths.max()
        ):  # causal texts never see what is behind
            behind = (
                torch.arange(queries.shape[2])
                < torch.from_numpy(block.lengths)[:, None, None, None]
            )
        mixed = functional.scaled_dot_product_attention(
            queries, keys, values, behind, is_causal=rule.is_causal, scale=float(rule.scale)
        )
        _scatter(mixed.flatten(0, 1).contiguous(), block, out)
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
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend within each text of a pack; without ``cu_seq_lens_q`` do as torch's own attention
    does.

    Has the form that transformers' ``AttentionInterface`` asks for: query ``[1, heads, tokens,
    d]``, result ``[1, tokens, heads, d]``.

    Raises:
        ValueError: for a mask or a variant of attention that packs do not have.
    """
    bounds = others.get("cu_seq_lens_q")
    if bounds is None:
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options, **others
        )
        return result
    unknown = [name for name in UNKNOWN if others.get(name) is not None]
    if unknown or attention_mask is not None:
        raise ValueError(f"packed attention knows no {', '.join(unknown) or 'mask'}")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rule = Rule(bool(causal), np.float32(scale), *threshold_and_key(dropout))
    use_torch_threads()
    # Of rotary positions, queries and keys come in float32 and values in half precision: backward
    # has no autocast.
    dtype = value.dtype if value.dtype in (torch.float32, torch.bfloat16) else torch.float32
    queries, keys, values = (
        part[0].transpose(0, 1).to(dtype).contiguous() for part in (query, key, value)
    )
    attended: Tensor
    if dtype == torch.float32 and dropout == 0 and not torch.is_grad_enabled():
        attended = attended_by_torch(queries, keys, values, Pack.of(bounds), rule)
    else:
        attended = PackedAttention.apply(queries, keys, values, Pack.of(bounds), rule)  # type: ignore[no-untyped-call]
    return attended[None].to(value.dtype), None


def packed_mask(*args: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """No mask for a pack, whose bounds say everything; torch's own for padded texts, which come
    with theirs.
    """
    if attention_mask is None:
        return None
    mask: Tensor | None = sdpa_mask(*args, attention_mask=attention_mask, **options)
    return mask


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)


def _gathered(block: Pack, *parts: tuple[Tensor, int]) -> list[Tensor]:
    """Copy the texts of a block out of ``[tokens, heads, d]``: ``[texts * heads * group, L, d]``
    each.

    Behind a shorter text its last token is repeated; no result depends on it.
    """
    starts, lengths = (torch.from_numpy(part).long()[:, None] for part in block)
    places = starts + torch.minimum(torch.arange(int(lengths.max())), lengths - 1)
    texts = ((packed[places].transpose(1, 2), group) for packed, group in parts)
    return [
        (text if group == 1 else text.repeat_interleave(group, 1)).flatten(0, 1).contiguous()
        for text, group in texts
    ]


def _scatter(blocks: Tensor, block: Pack, packed: Tensor) -> None:
    """Copy the texts of a block to their places; heads that share one are added up."""
    lengths = torch.from_numpy(block.lengths)
    start, stop = int(block.starts[0]), int(block.starts[-1] + block.lengths[-1])
    inside = torch.arange(blocks.shape[1]) < lengths[:, None]
    texts = blocks.view(len(lengths), -1, *blocks.shape[1:]).transpose(1, 2)[inside]
    heads, width = packed.shape[1:]
    group = texts.shape[1] // heads
    packed[start:stop] = texts if group == 1 else texts.view(-1, heads, group, width).float().sum(2)


def _parts(queries: Tensor) -> Iterator[slice]:
    """Cut units so that their scores stay in the processor's caches."""
    units, width = queries.shape[:2]
    step = max(1, BLOCK_SCORES // width**2)
    return (slice(start, min(start + step, units)) for start in range(0, units, step))
