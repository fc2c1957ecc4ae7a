"""The residual projection alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from opera.adapter.projection import ResidualProjection
from small_runs import unit_vectors

RANKS = [None, 3]


def moved(projection: ResidualProjection, x: torch.Tensor) -> torch.Tensor:
    return projection({"sentence_embedding": x})["sentence_embedding"]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.from_numpy(unit_vectors(np.random.default_rng(0), 7, 12))


@pytest.mark.parametrize("rank", RANKS)
def test_it_starts_as_the_identity_to_the_last_bit(rank: int | None, x: torch.Tensor) -> None:
    projection = ResidualProjection(12, rank).start(0, "query")
    assert torch.equal(moved(projection, x), x)
    assert torch.equal(projection.matrix(), torch.eye(12))


@pytest.mark.parametrize("rank", RANKS)
def test_one_step_moves_it(rank: int | None, x: torch.Tensor) -> None:
    projection = ResidualProjection(12, rank).start(0, "query")
    moved(projection, x)[:, 0].sum().backward()
    gradient = projection.weight.grad if rank is None else projection.outer.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("rank", RANKS)
def test_a_dense_layer_does_the_same(rank: int | None, x: torch.Tensor) -> None:
    projection = ResidualProjection(12, rank).start(0, "query")
    with torch.no_grad():
        for number, parameter in enumerate(projection.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(number))
    dense = projection.as_dense()({"sentence_embedding": x.clone()})["sentence_embedding"]
    # Sums of at most 15 products of size 10, in another order: 15 · 2⁻²⁴ · 10 = 1e-5.
    torch.testing.assert_close(dense, moved(projection, x), atol=1e-4, rtol=0)


@pytest.mark.parametrize("rank", RANKS)
def test_it_is_saved_and_loaded(rank: int | None, tmp_path: Path) -> None:
    projection = ResidualProjection(12, rank).start(0, "query")
    with torch.no_grad():
        next(projection.parameters()).add_(0.5)
    projection.save(str(tmp_path))
    again = ResidualProjection.load(str(tmp_path))
    assert again.rank == rank
    assert torch.equal(again.matrix(), projection.matrix())


def test_the_inner_factor_is_drawn_by_seed_and_role() -> None:
    first, same, other, document = (
        ResidualProjection(12, 3).start(seed, role).inner
        for seed, role in ((0, "query"), (0, "query"), (1, "query"), (0, "document"))
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(first, document)
