"""Tables over several worlds."""

from __future__ import annotations

from opera.diagnostics.theory import World, grid


def test_grid_covers_every_pair() -> None:
    points = grid(World(repeats=20, documents=20), (0.2, 0.4), (0.5, 0.7))
    assert [(p.world.noise, p.world.auc) for p in points] == [(0.2, 0.5), (0.2, 0.7), (0.4, 0.5), (0.4, 0.7)]
