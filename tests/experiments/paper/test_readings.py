"""Runs by the paper's text, by the release and by OPERA's defaults, beside the paper and apart from each other."""

from __future__ import annotations

from typing import Any

import pytest

from grids import PaperRuns, figure_at
from opera.config.presets import PRESETS
from opera.config.recipe import make_recipe
from opera.experiments.paper import matching_methods
from opera.experiments.paper.readings import READINGS, TRAINING, fewest_readings
from opera.experiments.paper.tables import AVERAGE, RANK

PAPER, RELEASE = (
    {name: preset[name] for name in ("global_batch_size", *TRAINING) if name in preset} for preset in PRESETS.values()
)
"""What a run without a preset needs to count for that reading."""


@pytest.mark.parametrize(
    ("label", "settings", "readings"),
    [
        ("FT", {"method": "ft"}, {"ours"}),
        ("FT", {"method": "ft", **PAPER}, {"ours", "paper"}),
        ("FT", {"method": "ft", **RELEASE}, {"ours", "release"}),
        ("FT", {"method": "ft", **PAPER, "temperature": 0.5}, {"ours"}),
        ("FT", {"method": "ft", "preset": "release"}, {"release"}),
        ("SP", {"method": "sp", **PAPER}, {"ours", "paper"}),
        ("SP", {"method": "sp", **RELEASE, "query_weighting": "uniform"}, {"release"}),
        ("SP", {"method": "sp", "query_weighting": "uniform"}, set()),
        ("DP", {"method": "dp"}, {"ours"}),
        ("DP", {"method": "dp", **PAPER, "query_score": "loss"}, {"paper"}),
        ("DP", {"method": "dp", **PAPER, "query_score": "loss", "warmup_ratio": 0.05}, set()),
        ("DP", {"method": "dp", **RELEASE, "query_score": "similarity", "update_interval": "epoch"}, {"release"}),
        ("DP", {"method": "dp", "query_score": "similarity"}, set()),
        ("DP", {"method": "dp", "preset": "release"}, {"release"}),
        ("DP", {"method": "dp", "preset": "release", "temperature": 0.05}, {"release"}),
        ("DP", {"method": "dp", "preset": "paper", "query_score": "negative_loss"}, set()),
        ("DP", {"method": "dp", "preset": "release", "query_score": "loss", "update_interval": 1}, set()),
        ("DP (I_u = 10)", {"method": "dp", "preset": "release", "update_interval": 10}, {"release"}),
        ("SP.75+DP", {"method": "sp+dp", "k": 0.75, "preset": "release"}, {"release"}),
        ("SP.75+DP", {"method": "sp+dp", "k": 0.75, **PAPER, "query_score": "loss"}, {"paper"}),
    ],
)
def test_a_run_follows_the_readings_that_its_settings_fit(
    label: str, settings: dict[str, Any], readings: set[str]
) -> None:
    (spec,) = matching_methods(label)
    assert spec.readings(make_recipe(settings).flat()) == readings


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ([], ("ours",)),
        ([{*READINGS}, {"ours", "paper"}], ("ours",)),
        ([{*READINGS}, {"ours", "paper"}, {"paper"}], ("paper",)),
        ([{"ours"}, {"ours", "paper"}, {"release"}], ("ours", "release")),
        ([{"ours"}, {"paper"}, {"release"}], ("ours", "paper", "release")),
    ],
)
def test_as_few_readings_as_have_every_run(found: list[set[str]], chosen: tuple[str, ...]) -> None:
    assert fewest_readings(found) == chosen


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_a_grid_of_one_preset_fills_the_table_without_labels(folder: PaperRuns, preset: str) -> None:
    for number, method in enumerate(("ft", "infobatch", "sp", "dp")):
        folder.add("nfcorpus", {"method": method, "preset": preset}, ndcg=[0.2 + number / 10], recall=[0.1])
    rows = folder.rows("main")
    means = [
        figure_at(rows, "NFCorpus", name, "NDCG@10").mean for name in ("Pretrained", "FT", "InfoBatch", "SP", "DP")
    ]
    assert means == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert {row.reading for row in rows} == {""}
    assert figure_at(rows, f"{RANK}, over NFCorpus", "DP", "NDCG@10").mean == 1


def test_several_readings_stand_in_rows_of_their_own_and_are_never_averaged(folder: PaperRuns) -> None:
    release = {"query_score": "similarity", "update_interval": "epoch"}
    folder.add("nfcorpus", {"method": "ft", **RELEASE}, ndcg=[0.3], recall=[0.1])
    folder.add("nfcorpus", {"method": "infobatch", **RELEASE}, ndcg=[0.3], recall=[0.1])
    folder.add("nfcorpus", {"method": "sp", **RELEASE}, ndcg=[0.4], recall=[0.1])
    folder.add("nfcorpus", {"method": "sp", **RELEASE, "query_weighting": "uniform"}, ndcg=[0.5], recall=[0.1])
    folder.add("nfcorpus", {"method": "dp", **RELEASE}, ndcg=[0.6], recall=[0.1])
    folder.add("nfcorpus", {"method": "dp", **RELEASE, **release}, ndcg=[0.7], recall=[0.1])
    rows = folder.rows("main")
    shown = {(row.row.method, row.reading): row.figures["NDCG@10"].mean for row in rows if row.row.data == "NFCorpus"}
    assert shown == {
        ("Pretrained", ""): 0.1, ("FT", ""): 0.3, ("InfoBatch", ""): 0.3,
        ("SP", "ours"): 0.4, ("SP", "release"): 0.5, ("DP", "ours"): 0.6, ("DP", "release"): 0.7,
    }  # fmt: skip
    for reading, expected in (("ours", 0.6), ("release", 0.7)):
        figure = figure_at(
            [row for row in rows if row.reading == reading], f"{AVERAGE}, over NFCorpus", "DP", "NDCG@10"
        )
        assert figure.mean == expected


def test_a_reading_without_a_run_of_some_method_has_no_average(folder: PaperRuns) -> None:
    for method in ("ft", "infobatch", "sp", "dp"):
        folder.add("nfcorpus", {"method": method, **RELEASE}, ndcg=[0.3], recall=[0.1])
    release = {"query_score": "similarity", "update_interval": "epoch"}
    folder.add("nfcorpus", {"method": "dp", **RELEASE, **release}, ndcg=[0.7], recall=[0.1])
    averages = {row.reading for row in folder.rows("main") if row.row.data == f"{AVERAGE}, over NFCorpus"}
    assert averages == {"ours"}


def test_the_batch_of_a_run_is_that_of_all_its_processes() -> None:
    settings = make_recipe({"method": "ft", **{**PAPER, "global_batch_size": None}, "batch_size": 8}).flat()
    (spec,) = matching_methods("FT")
    assert spec.readings(settings) == {"ours"}
    assert spec.readings(settings, processes=8) == {"ours", "paper"}
    assert spec.readings({**settings, "gradient_accumulation_steps": 4}, processes=2) == {"ours", "paper"}


def test_fine_tuning_of_ones_own_is_no_baseline_of_a_preset(folder: PaperRuns) -> None:
    folder.add("fever", {"method": "ft", "temperature": 0.5}, seconds=0.1, ndcg=[0.9])
    folder.add("fever", {"method": "dp", "preset": "paper", "update_interval": 10}, seconds=0.5, ndcg=[0.4])
    rows = folder.rows("overhead-fever")
    (dp,) = [row for row in rows if row.row.method == "DP (I_u = 10)" and row.reading == "paper"]
    assert dp.figures["Per-step overhead (%)"].missing == "FT not run"
    assert {row.reading for row in rows if row.row.method == "FT"} == {"ours"}


def test_speeds_are_relative_to_ft_of_the_same_reading(folder: PaperRuns) -> None:
    for preset, seconds in (("paper", 0.4), ("release", 0.2)):
        folder.add("fever", {"method": "ft", "preset": preset}, seconds=seconds, ndcg=[0.4])
        folder.add("fever", {"method": "dp", "preset": preset, "update_interval": 10}, seconds=0.5, ndcg=[0.4])
    rows = [row for row in folder.rows("overhead-fever") if row.row.method == "DP (I_u = 10)"]
    overheads = {row.reading: row.figures["Per-step overhead (%)"].mean for row in rows}
    assert overheads == {"paper": pytest.approx(25), "release": pytest.approx(150)}
