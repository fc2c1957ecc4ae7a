"""Does the rule for λ hold on data that had no part in it? Constants chosen on three data sets, tried on the fourth.

    .venv/bin/python studies/left_out.py

Reads the trainings of ``studies/samplers.py`` (runs/curves), trains nothing, and fills in a table of
docs/when-fine-tuning-hurts.md. Constants are chosen by the mean over all trainings of the other three.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product

import numpy as np

from curves import SHARES, Curves, choose
from opera.core.intervals import mean_interval, signed
from opera.training.guard import rule
from page import ROOT, fill, table_lines
from samplers import CURVES, METHODS, SETS, WORLDS, place

PAGE = ROOT / "docs" / "when-fine-tuning-hurts.md"
NEW, KNOWN, GAIN = (0.125, 0.25, 0.375, 0.5), (0.75, 1.0), (0.05, 0.1, 0.2)
"""Candidates: the anchor where all documents are new, the anchor where half are known, and G."""

Constants = tuple[float, float, float]


def with_constants(constants: Constants) -> None:
    """Set the rule's constants."""
    new, known, gain = constants
    rule.STATIC_ANCHOR = (new, rule.STATIC_ANCHOR[1], known)
    rule.GAIN = gain


def chosen(curves: Curves, told: float | None = None) -> int:
    """Place of the share that the rule chooses by dev; ``told`` is what ``--future`` says where test is not read."""
    per_query = {share: curves.dev[place, 0] for place, share in enumerate(SHARES)}
    return SHARES.index(choose(per_query, curves.test_seen if told is None else told))


def points_lost(trainings: Mapping[tuple[str, str, int], Curves], constants: Constants) -> float:
    """Mean points of nDCG@10 on test below the best share."""
    with_constants(constants)
    means = [(curves.test[:, 0].mean(1), chosen(curves)) for curves in trainings.values()]
    return float(np.mean([100 * (values.max() - values[place]) for values, place in means]))


def main() -> None:
    """Choose and try, and fill in the table."""
    found = {
        (world, method, seed): Curves.read(path)
        for world, method, seed in product(WORLDS, METHODS, range(3))
        if (path := place(world, method, seed)).is_file()
    }
    if not found:
        sys.exit(f"{CURVES} has no training: run studies/samplers.py first")
    shipped = (rule.STATIC_ANCHOR[0], rule.STATIC_ANCHOR[2], rule.GAIN)
    rows, values = [], dict[str, list[list[float]]]()
    for left_out in SETS:
        others = {key: curves for key, curves in found.items() if key[0].split("+")[0] != left_out}
        constants = min(product(NEW, KNOWN, GAIN), key=lambda candidate: points_lost(others, candidate))
        for world in (left_out, f"{left_out}+new"):
            own, told = [curves for key, curves in found.items() if key[:2] == (world, "ft")], float("+" not in world)
            if own:
                cells = [*gains(own, constants), *gains(own, constants, told)[:2], *gains(own, shipped)]
                rows.append([world, str(len(own)), *map(signed, cells)])
                values.setdefault(left_out, []).append(cells)
    against = ["against untrained", "fine-tuned", "best λ"]
    heads = ["world", "seeds", *against, *(f"the true --future: {name}" for name in against[:2])]
    sets = np.array([np.mean(of_set, axis=0) for of_set in values.values()])
    intervals = [f"{signed(low)} to {signed(high)}" for low, high in map(mean_interval, sets.T)]
    rows += [["mean of the sets", "", *map(signed, sets.mean(0))], ["its 95% interval", "", *intervals]]
    heads = [*heads, f"shipped: {against[0]}", *against[1:]]
    fill(PAGE, {"left-out": table_lines(heads, rows)})


def gains(own: list[Curves], constants: Constants, told: float | None = None) -> list[float]:
    """Points of nDCG@10 on test of the chosen share: against untrained, fine-tuned, and the best share."""
    with_constants(constants)
    points = []
    for curves in own:
        values, place = 100 * curves.test[:, 0].mean(1), chosen(curves, told)
        points.append([values[place] - other for other in (values[0], values[-1], values.max())])
    return [float(mean) for mean in np.mean(points, axis=0)]


if __name__ == "__main__":
    main()
