"""Average ranks and winners."""

from __future__ import annotations

from itertools import product

import numpy as np

from grids import N_QUERIES, RunsFolder
from opera.experiments.analysis import PRIMARY, analyse_runs, average_ranks, mean_ranks


def test_average_ranks_share_ties_and_need_a_method_everywhere(folder: RunsFolder) -> None:
    means = {"one": {"ft": 0.5, "sp": 0.6, "dp": 0.7}, "two": {"ft": 0.5, "sp": 0.5, "dp": 0.4}}
    for data, by_method in means.items():
        for method, mean in by_method.items():
            folder.add(data=data, method=method, after=[mean] * N_QUERIES)
    folder.add(data="one", method="rp")
    assert average_ranks(folder.groups(), PRIMARY) == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    comparison = analyse_runs(folder.home)
    assert comparison.ranks[PRIMARY] == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    assert average_ranks([group for group in folder.groups() if group.method == "ft"], PRIMARY) == {}


def test_ranks_are_of_the_largest_number_of_steps(folder: RunsFolder) -> None:
    for data, method, steps in product(("one", "two"), ("ft", "dp"), (4, 8)):
        folder.add(data=data, method=method, max_steps=steps, after=[0.5 + ((method == "dp") == (steps == 8)) / 8] * 9)
    assert analyse_runs(folder.home).ranks[PRIMARY] == {"ft": 2.0, "dp": 1.0}
    assert analyse_runs(folder.home).final("two").steps == 8


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert mean_ranks(np.array([[0.3, 0.5, 0.5], [0.1, 0.2, 0.3]])).tolist() == [3, 1.75, 1.25]
