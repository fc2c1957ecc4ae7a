"""Runs by the paper's text, by the release and by OPERA's defaults, beside the paper and apart from each other."""

from __future__ import annotations

from typing import Any

import pytest

from grids import PaperRuns, figure_at
from opera.config.recipe import make_recipe
from opera.experiments.paper import matching_methods
from opera.experiments.paper.tables import AVERAGE, RANK


@pytest.mark.parametrize(
    ("label", "settings", "fits"),
    [
        ("FT", {"method": "ft"}, True),
        ("FT", {"method": "ft", "preset": "release"}, True),
        ("SP", {"method": "sp", "preset": "release", "query_weighting": "uniform"}, True),
        ("SP", {"method": "sp", "query_weighting": "uniform"}, False),
        ("DP", {"method": "dp"}, True),
        ("DP", {"method": "dp", "query_score": "loss"}, False),
        ("DP", {"method": "dp", "preset": "release"}, True),
        ("DP", {"method": "dp", "preset": "release", "temperature": 0.05}, True),
        ("DP", {"method": "dp", "preset": "paper", "query_score": "negative_loss"}, False),
        ("DP", {"method": "dp", "preset": "release", "query_score": "loss", "update_interval": 1}, False),
        ("DP (I_u = 10)", {"method": "dp", "preset": "release", "update_interval": 10}, True),
        ("SP.75+DP", {"method": "sp+dp", "k": 0.75, "preset": "release"}, True),
    ],
)
def test_a_run_has_the_other_settings_of_its_own_reading(label: str, settings: dict[str, Any], fits: bool) -> None:
    (spec,) = matching_methods(label)
    assert spec.fits(make_recipe(settings).flat()) is fits


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
    for preset, first in ((None, 0.2), ("release", 0.3)):
        chosen = {} if preset is None else {"preset": preset}
        for number, method in enumerate(("ft", "infobatch", "sp", "dp")):
            if (preset, method) != ("release", "sp"):
                folder.add("nfcorpus", {"method": method, **chosen}, ndcg=[first + number / 5], recall=[0.1])
    rows = folder.rows("main")
    shown = {(row.row.method, row.reading): row.figures["NDCG@10"].mean for row in rows if row.row.data == "NFCorpus"}
    assert shown == pytest.approx({
        ("Pretrained", "ours"): 0.1, ("FT", "ours"): 0.2, ("InfoBatch", "ours"): 0.4, ("SP", "ours"): 0.6,
        ("DP", "ours"): 0.8, ("Pretrained", "release"): 0.1, ("FT", "release"): 0.3, ("InfoBatch", "release"): 0.5,
        ("SP", "release"): None, ("DP", "release"): 0.9,
    })  # fmt: skip
    averages = [row for row in rows if row.row.data == f"{AVERAGE}, over NFCorpus"]
    assert {row.reading for row in averages} == {"ours"}, "a reading without a run of some method has no average"


def test_fine_tuning_of_ones_own_is_no_baseline_of_a_preset(folder: PaperRuns) -> None:
    folder.add("fever", {"method": "ft", "temperature": 0.5}, seconds=0.1, ndcg=[0.9])
    folder.add("fever", {"method": "dp", "preset": "paper", "update_interval": 10}, seconds=0.5, ndcg=[0.4])
    rows = folder.rows("overhead-fever")
    (dp,) = [row for row in rows if row.row.method == "DP (I_u = 10)" and row.reading == "paper"]
    assert dp.figures["Per-step overhead (%)"].missing == "FT not run"


def test_speeds_are_relative_to_ft_of_the_same_reading(folder: PaperRuns) -> None:
    for preset, seconds in (("paper", 0.4), ("release", 0.2)):
        folder.add("fever", {"method": "ft", "preset": preset}, seconds=seconds, ndcg=[0.4])
        folder.add("fever", {"method": "dp", "preset": preset, "update_interval": 10}, seconds=0.5, ndcg=[0.4])
    rows = [row for row in folder.rows("overhead-fever") if row.row.method == "DP (I_u = 10)"]
    overheads = {row.reading: row.figures["Per-step overhead (%)"].mean for row in rows}
    assert overheads == {"paper": pytest.approx(25), "release": pytest.approx(150)}
