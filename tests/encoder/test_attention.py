"""Attention over packed texts: torch's own, text by text, and its gradients; dropout with the same mask both ways."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from opera.encoder import _attention as attention
from opera.encoder._attention import (
    AttentionSettings,
    HashedDropout,
    Pack,
    PackedAttention,
    attended_by_torch,
    threshold_and_key,
)
from processes import start

LENGTHS = [3, 5, 9, 40, 41, 47, 47, 70, 130]
WIDTH = 8


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.from_numpy(np.cumsum([0, *lengths]).astype(np.int32))


def random_parts(heads: int, shared: int, dtype: torch.dtype, lengths: list[int]) -> list[Tensor]:
    generator, tokens = torch.Generator().manual_seed(3), sum(lengths)
    shapes = [(tokens, heads, WIDTH), (tokens, shared, WIDTH), (tokens, shared, WIDTH)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def by_torch(parts: list[Tensor], lengths: list[int], is_causal: bool) -> Tensor:
    """Each text by itself, in float32."""
    group = parts[0].shape[1] // parts[1].shape[1]
    outputs = []
    for first, stop in pairwise(bounds_of(lengths).tolist()):
        query, key, value = (part[first:stop].float().transpose(0, 1) for part in parts)
        key, value = (part.repeat_interleave(group, 0) for part in (key, value))
        outputs.append(F.scaled_dot_product_attention(query, key, value, is_causal=is_causal).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize(
    ("is_causal", "shared", "dtype", "tolerance"),
    [
        (False, 4, torch.float32, 1e-5),
        (True, 2, torch.float32, 1e-5),
        (True, 4, torch.bfloat16, 0.05),
        (False, 2, torch.bfloat16, 0.05),
    ],
)
def test_results_and_gradients_are_those_of_torch(is_causal, shared, dtype, tolerance, monkeypatch):
    # bfloat16 keeps 8 bits: 0.4% of numbers up to 8 here. Small blocks, so that texts and heads are cut apart.
    monkeypatch.setattr(attention, "BLOCK_TOKENS", 128)
    monkeypatch.setattr(attention, "BLOCK_SCORES", 3 * 47**2)
    parts = random_parts(4, shared, dtype, LENGTHS)
    rule = AttentionSettings(is_causal, np.float32(WIDTH**-0.5), *threshold_and_key(0))
    attended = PackedAttention.apply(*parts, Pack.of(bounds_of(LENGTHS)), rule)
    expected = by_torch(parts, LENGTHS, is_causal)
    above = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(attended.float(), expected, rtol=0, atol=tolerance)
    with torch.no_grad():
        inference = attended_by_torch(*parts, Pack.of(bounds_of(LENGTHS)), rule)
    torch.testing.assert_close(inference.float(), expected, rtol=0, atol=tolerance)
    gradients = torch.autograd.grad(attended, parts, above.to(dtype))
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, parts, above), strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def test_gradients_with_dropout_are_those_of_small_steps():
    lengths = [40, 21, 6]
    parts = random_parts(2, 2, torch.float32, lengths)
    rule = AttentionSettings(False, np.float32(0.5), np.uint32(0.3 * 2**32), np.uint32(77))
    weights = torch.randn((sum(lengths), 2, WIDTH), generator=torch.Generator().manual_seed(1))

    def value(*given: Tensor) -> Tensor:
        mixed = PackedAttention.apply(*given, Pack.of(bounds_of(lengths)), rule)
        return (mixed * weights).sum()

    direction = [torch.randn(part.shape, generator=torch.Generator().manual_seed(2)) for part in parts]
    slope = sum(
        (gradient * step).sum()
        for gradient, step in zip(torch.autograd.grad(value(*parts), parts), direction, strict=True)
    )
    ahead, behind = (
        value(*(part + size * step for part, step in zip(parts, direction, strict=True))) for size in (1e-2, -1e-2)
    )
    # the error of a central difference is about 1e-4 of a slope, that of float32 divided by the step another 1e-4
    assert abs((ahead - behind) / 2e-2 - slope) < 2e-3 * abs(slope) + 2e-3


def test_dropout_keeps_the_right_share_and_repeats_its_mask():
    layer = HashedDropout(0.1)
    numbers = torch.ones(512, 384, requires_grad=True)
    torch.manual_seed(1)
    first = layer(numbers)
    (gradient,) = torch.autograd.grad(first.sum(), numbers)
    torch.manual_seed(1)
    assert torch.equal(layer(numbers), first)
    assert not torch.equal(layer(numbers), first)
    assert torch.equal(gradient, first)  # ones: what came through is what goes back
    survived = (first > 0).double()
    # 196,608 draws: the standard deviation of their mean is 0.0007, of a row's 0.0153, of a column's 0.0133
    assert abs(survived.mean() - 0.9) < 0.004
    assert torch.allclose(first[first > 0], torch.tensor(1 / 0.9))
    assert (survived.mean(0) - 0.9).abs().max() < 0.08
    assert (survived.mean(1) - 0.9).abs().max() < 0.08
    neighbours = torch.stack([(survived[:, 1:] * survived[:, :-1]).mean(), (survived[1:] * survived[:-1]).mean()])
    assert (neighbours - 0.81).abs().max() < 0.005
    assert torch.equal(layer.eval()(numbers), numbers)


THREADS = """
import numba, torch
from opera.core.arrays import use_torch_threads
numba.config.reload_config()
torch.set_num_threads(2)
use_torch_threads()
print(torch.get_num_threads(), numba.get_num_threads())
"""


def test_numba_leaves_torch_the_threads_that_it_had(tmp_path):
    """torchrun, a grid and a container's quota give a process fewer than numba finds."""
    (tmp_path / "threads.py").write_text(THREADS)
    child = start([str(tmp_path / "threads.py")], tmp_path / "log", NUMBA_NUM_THREADS="3")
    assert child.wait() == 0, child.log.read_text()
    assert child.log.read_text().split() == ["2", "2"]


@pytest.mark.parametrize("lengths", [[60, 100], sorted(range(30, 100, 3), reverse=True), [30] * 64])
def test_no_two_rows_share_a_dropout_mask(lengths):
    """Scores of 0 and one-hot values make each row of the result the mask of a query."""
    heads, width = 2, max(lengths)
    zeros = torch.zeros(sum(lengths), heads, WIDTH)
    places = torch.cat([torch.arange(length) for length in lengths])
    values = F.one_hot(places, width).float()[:, None].repeat(1, heads, 1)
    rule = AttentionSettings(False, np.float32(1), np.uint32(2**31), np.uint32(5))
    mixed = PackedAttention.apply(zeros, zeros, values, Pack.of(bounds_of(lengths)), rule)
    masks = (mixed[..., : min(lengths)] > 0).flatten(0, 1).numpy()
    assert abs(masks.mean() - 0.5) < 0.02  # of 12,000 draws or more, whose mean has a standard deviation below 0.005
    # 30 keys or more at a rate of one half: of 4,000 rows some two are equal by chance in 1 case of 130
    assert len(np.unique(np.packbits(masks, axis=1), axis=0)) == len(masks)
