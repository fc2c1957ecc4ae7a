"""Which runs match which row of the paper."""

from __future__ import annotations

from typing import Any

import pytest

from grids import PaperRuns, figure_at
from opera.config.recipe import make_recipe
from opera.core.errors import SettingError
from opera.experiments.analysis import find_groups
from opera.experiments.paper.matching import (
    METHODS_BY_LABEL,
    data_key,
    matching_methods,
    our_measure,
    with_settings,
)
from opera.experiments.paper.tables import TABLES, table_rows


def test_every_row_matches_runs_of_known_methods_and_settings() -> None:
    labels = set()
    for table in TABLES:
        for row in table_rows(table.name):
            assert all(name.partition("@")[0] != "NDCG" or our_measure(name) for name in row.values)
            if row.method == "Pretrained":
                continue
            for spec in matching_methods(row.method):
                recipe = make_recipe({"method": spec.method, **spec.settings})
                assert spec.fits(recipe.flat()), row
                labels.add(row.method)
    assert set(METHODS_BY_LABEL) <= labels
    with pytest.raises(KeyError):
        matching_methods("SPDP")


@pytest.mark.parametrize(
    ("label", "settings"),
    [
        ("SP", {"method": "sp", "k": 0.4}),
        ("SP", {"method": "sp", "score": "cbs"}),
        ("SP", {"method": "rp"}),
        ("SP.75+DP", {"method": "sp+dp", "k": 0.75, "levels": "query"}),
        ("DP", {"method": "dp", "soft": False}),
        ("DP", {"method": "dp", "update_interval": "epoch"}),
        ("DP", {"method": "dp", "query_score": "loss", "update_interval": 10}),
        ("DP (I_u = 10)", {"method": "dp", "update_interval": 10, "soft": False}),
        ("DP (fixed-strength)", {"method": "dp", "alpha_start": 4, "alpha_end": 4}),
        ("InfoBatch", {"method": "infobatch", "rho": 0.5}),
    ],
)
def test_other_settings_do_not_match(label: str, settings: dict[str, Any]) -> None:
    assert not any(spec.fits(make_recipe(settings).flat()) for spec in matching_methods(label))


def test_cbs_has_two_names_and_its_pool_counts() -> None:
    for settings, matches in (
        ({"method": "sp+cbs"}, True),
        ({"method": "sp", "score": "cbs"}, True),
        ({"method": "sp+cbs", "cbs_pool": 10}, False),
        ({"method": "sp"}, False),
    ):
        assert any(spec.fits(make_recipe(settings).flat()) for spec in matching_methods("SP (CBS)")) is matches
    assert matching_methods("SP")[0].fits(make_recipe({"method": "sp", "cbs_pool": 10}).flat()), (
        "without CBS it changes nothing"
    )


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("../shared/data/nfcorpus", "nfcorpus"), ("NFCorpus", "nfcorpus"), ("beir/TripClick-Head/", "tripclickhead"),
        ("TripClick (h)", "tripclickhead"), ("tripclick_torso", "tripclicktorso"), ("x/fiqa.jsonl", "fiqa"),
        ("paper:tripclick-head", "tripclickhead"), ("irds:antique/train", "antique"), ("hf:mteb/nfcorpus", "nfcorpus"),
    ],
)  # fmt: skip
def test_data_sets_are_known_by_their_last_part(source: str, key: str) -> None:
    assert data_key(source) == key


def test_fiqa_keeps_half_in_table_2_and_a_quarter_in_table_10(folder: PaperRuns) -> None:
    folder.add("fiqa", {"method": "sp", "k": 0.5}, ndcg=[0.4], recall=[0.2])
    assert figure_at(folder.rows("main"), "FiQA", "SP", "NDCG@10").mean == 0.4
    assert figure_at(folder.rows("cbs"), "FiQA", "SP", "NDCG@10").mean is None


def test_noise_counts_in_denoising_alone(folder: PaperRuns) -> None:
    noise = {"noise": "grade", "relevant_grade": 3, "noise_grade": 2}
    folder.add("antique", {"method": "sp", "k": 0.75, **noise}, ndcg=[0.4], recall=[0.2])
    folder.add("antique", {"method": "dp", "noise": "random", "noise_share": 0.3}, ndcg=[0.3], recall=[0.2])
    assert figure_at(folder.rows("denoising"), "ANTIQUE", "SP.75", "NDCG@10").mean == 0.4
    assert figure_at(folder.rows("denoising"), "ANTIQUE", "DP", "NDCG@10").mean is None
    assert figure_at(folder.rows("main"), "ANTIQUE", "DP", "NDCG@10").mean is None


def test_the_most_steps_of_each_data_set_or_those_requested(folder: PaperRuns) -> None:
    for steps, ndcg in ((50, 0.3), (100, 0.4)):
        folder.add("nfcorpus", {"method": "ft"}, steps=steps, ndcg=[ndcg], recall=[0.2])
    folder.add("fever", {"method": "ft"}, steps=50, ndcg=[0.6], recall=[0.2])
    for steps, expected in ((None, (0.4, 0.6)), (50, (0.3, 0.6)), (100, (0.4, None)), (7, (None, None))):
        rows = folder.rows("main", steps=steps)
        assert tuple(figure_at(rows, data, "FT", "NDCG@10").mean for data in ("NFCorpus", "FEVER")) == expected


def test_if_several_kinds_of_run_match_none_is_taken(folder: PaperRuns) -> None:
    for masked in (True, False):
        folder.add("nfcorpus", {"method": "ft", "mask_known_positives": masked}, ndcg=[0.4], recall=[0.2])
    (row,) = [row for row in folder.rows("reversed") if row.row.method == "FT"]
    assert row.candidates == ("ft", "ft:mask_known_positives=false")
    assert {(figure.mean, figure.missing) for figure in row.figures.values()} == {(None, "2 kinds match")}
    groups = find_groups(folder.home)
    chosen = with_settings(groups, {"mask_known_positives": False})
    assert [group.method for group in chosen] == ["ft:mask_known_positives=false"]
    with pytest.raises(SettingError, match="did you mean 'mask_known_positives'"):
        with_settings(groups, {"mask_known_positive": False})


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
def test_a_run_has_the_other_settings_of_its_own_preset(label: str, settings: dict[str, Any], fits: bool) -> None:
    (spec,) = matching_methods(label)
    assert spec.fits(make_recipe(settings).flat()) is fits
