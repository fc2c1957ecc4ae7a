"""When each method first reaches the baseline's best."""

from __future__ import annotations

from grids import N_QUERIES, RunsFolder
from opera.experiments.analysis.convergence import compute_convergence


def test_the_first_to_reach_the_baselines_best(folder: RunsFolder) -> None:
    means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
    for method, values in means.items():
        for steps, mean in zip((4, 8, 16), values, strict=True):
            seconds = 0.5 if method == "ft" else 0.75
            folder.add(method=method, max_steps=steps, final=[mean] * N_QUERIES, step_seconds=seconds)
    folder.add(data="data/short", method="ft")
    folder.add(data="data/short", method="dp")
    found = {row.method: row for row in compute_convergence(folder.groups(), "ft")}
    assert list(found) == ["ft", "sp", "dp"]
    assert {row.data for row in found.values()} == {"data/one"}, "one number of steps shows no convergence"
    assert (found["ft"].target, found["ft"].baseline_steps, found["ft"].steps) == (0.5, 8, 8)
    assert (found["sp"].steps, found["sp"].seconds_ratio) == (None, None)
    assert (found["dp"].steps, found["dp"].seconds_ratio) == (4, 0.75)
    assert compute_convergence(folder.groups(), "infobatch") == []
