"""What ``opera compare`` prints at the end."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from grids import N_QUERIES, RunsFolder, around, guard_record
from opera.cli.printing.grid_results import print_grid_results
from opera.experiments.analysis import PRIMARY, Comparison, analyse_runs
from opera.experiments.analysis.verdict import verdict
from opera.runs.record import GridRecord, ShareMean


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def printed(comparison: Comparison, width: int = 160) -> str:
    screen = Console(width=width, highlight=False, no_color=True)
    with screen.capture() as captured:
        print_grid_results(screen, comparison)
    return captured.get()


def test_a_single_method_has_no_tests(folder: RunsFolder) -> None:
    folder.add(method="dp", after=[0.25] * 9)
    text = printed(analyse_runs(folder.home))
    assert "against" not in text.split("Against")[0].replace("against baseline", "")
    assert " 0.250 " in text


def test_shared_settings_unfinished_runs_and_missing_cells(folder: RunsFolder) -> None:
    for method in ("ft", "dp"):
        folder.add(method=method, temperature=0.05, noise="random", noise_share=0.3)
    unfinished = folder.add(method="sp", status="running")
    other = folder.add(method="rp")
    (other / "run.json").write_text((other / "run.json").read_text().replace('"format": 4', '"format": 1'))
    GridRecord(model="models/small", settings={}, cells=["run0", "run1", "run2"]).write(folder.home)
    text = printed(analyse_runs(folder.home), 400)
    assert "all runs: temperature=0.05, noise=random, noise_share=0.3" in text
    assert f"left out, unfinished: {unfinished}" in text
    assert f"left out, written by another version of OPERA: {other}" in text
    assert "1 of the grid's 3 cells is not finished" in text


def test_convergence_starts_with_the_baseline_whichever_it_is(folder: RunsFolder) -> None:
    means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
    for method, values in means.items():
        for steps, mean in zip((4, 8, 16), values, strict=True):
            seconds = 0.5 if method == "ft" else 0.75
            folder.add(method=method, max_steps=steps, after=[mean] * N_QUERIES, step_seconds=seconds)
    text = printed(analyse_runs(folder.home, "dp"))
    head = text.index(f"one: dp has its best {PRIMARY}, 0.700, at 16 steps; matched by")
    assert head < text.index("ft: never")
    assert head < text.index("sp: never")
    assert "dp: 4 steps, 0.75 × the time" in printed(analyse_runs(folder.home))


def test_ranks(folder: RunsFolder) -> None:
    means = {"one": {"ft": 0.5, "sp": 0.6, "dp": 0.7}, "two": {"ft": 0.5, "sp": 0.5, "dp": 0.4}}
    for data, by_method in means.items():
        for method, mean in by_method.items():
            folder.add(data=data, method=method, after=[mean] * N_QUERIES)
    text = printed(analyse_runs(folder.home))
    ranks = [
        line.split()[:2]
        for line in text[text.index("average rank over") :].splitlines()
        if line.split()[:1] in (["ft"], ["sp"], ["dp"])
    ][:3]
    assert ranks == [["ft", "2.25"], ["sp", "1.75"], ["dp", "2.00"]]


def test_the_verdict_of_each_data_set_and_its_best_model(folder: RunsFolder) -> None:
    folder.add(method="ft", after=around(0.5, 1), before=[0.3] * 9)
    best = folder.add(method="dp", after=around(0.6, 2), before=[0.3] * 9)
    folder.add(method="ft", data="data/two", after=around(0.05), before=[0.1] * 9)
    folder.add(method="dp", data="data/two", after=around(0.02), before=[0.1] * 9)
    comparison = analyse_runs(folder.home)
    text = printed(comparison, 400)
    lines = text.splitlines()
    for found in verdict(comparison):
        assert found.title in lines
        assert all(f"- {bullet}" in lines for bullet in found.bullets)
    assert [line for line in lines if line.startswith("- Model: ")] == [f"- Model: {best / 'model'}"]
    assert f"- Best method: none, keep the untrained model ({PRIMARY} 0.100; ft: 0.050)" in lines


def test_labels_are_printed_as_they_are(folder: RunsFolder) -> None:
    for steps, method in product((4, 8), ("dp", "ft")):
        folder.add(method=method, data="data/[bold]x", max_steps=steps)
    assert printed(analyse_runs(folder.home)).count("[bold]x") == 4


def test_both_models_with_what_the_guard_chose(folder: RunsFolder) -> None:
    for method, seed in product(("ft", "dp"), (0, 1)):
        tuned, after = around(0.4, seed), around(0.5, seed)
        verdict = "better" if method == "ft" or seed else "same"
        share = 0.25 + 0.5 * seed
        chosen = guard_record(share=share, verdict=verdict, curve=[ShareMean(share=share, mean=0.34)])
        folder.add(method=method, seed=seed, before=[0.3] * 9, fine_tuned=tuned, after=after, chosen=chosen)
    text = printed(analyse_runs(folder.home))
    rows = [line.split() for line in text.splitlines() if "0.25 0.75" in line]
    assert [row[:5] for row in rows] == [
        ["ft", "0.25", "0.75", "better", "better"],
        ["dp", "0.25", "0.75", "same", "better"],
    ]
    assert rows[0][5:8] == ["0.400", "±", "0.000"]
    assert "+10.0" in rows[0]
    assert " ".join(text.split()).count("Train names 50% of dev's documents and 45% of test's;") == 1
    folder.add(method="sp", guard=False)
    assert "what the guard handed over" in printed(analyse_runs(folder.home))


def test_without_a_guard_there_is_no_table_of_it(folder: RunsFolder) -> None:
    folder.add()
    assert "handed over" not in printed(analyse_runs(folder.home))
