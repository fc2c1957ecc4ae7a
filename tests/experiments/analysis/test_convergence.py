"""When each method first reaches the baseline's best."""

from grids import N_QUERIES
from opera.experiments.results import analyse_runs
from opera.experiments.verdict import convergence_lines


def test_the_first_to_reach_the_baselines_best(folder):
    means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
    for method, values in means.items():
        for steps, mean in zip((4, 8, 16), values, strict=True):
            seconds = 0.5 if method == "ft" else 0.75
            folder.add(method=method, max_steps=steps, final=[mean] * N_QUERIES, step_seconds=seconds)
    folder.add(data="data/short", method="ft")
    folder.add(data="data/short", method="dp")
    lines = list(convergence_lines(analyse_runs(folder.home, "ft")))
    heading, *methods = lines
    assert heading == "\none: ft has its best nDCG@10, 50.0, at 8 steps; matched by"
    assert methods == ["  sp: never", "  dp: 4 steps, 0.75 × the time"], "data/short has one number of steps"
    (of_sp, *_) = convergence_lines(analyse_runs(folder.home, "sp"))
    assert of_sp.startswith("\none: sp has its best nDCG@10, 40.0, at 16 steps")
