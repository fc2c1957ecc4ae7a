"""Comparisons from run folders alone, on made-up runs whose figures are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import ttest_rel

from opera.cli.printing.comparison import print_comparison
from opera.config.recipe import make_recipe
from opera.core.errors import RunFolderError, SettingError
from opera.experiments.analysis import (
    BUCKETS,
    PAPERS,
    PRIMARY,
    RECALL,
    Comparison,
    Group,
    average_ranks,
    compare_runs,
    coverage,
    find_groups,
    find_runs,
    holm,
    label_of,
    paired_test,
    query_differences,
    races,
    short_name,
    tertiles,
    winners,
)
from opera.experiments.analysis.facts import by_difficulty, effective_share
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.folder import Run, RunWriter

TRACE = pa.schema([("step", pa.int64()), ("seconds", pa.float64())])
N_QUERIES = 9


class Folder:
    """Makes up runs in a folder."""

    def __init__(self, home: Path) -> None:
        self.home, self.count = home, 0

    def add(
        self,
        data: str = "data/one",
        after: Sequence[float] | NDArray[np.float64] = (0.5,) * N_QUERIES,
        papers: Sequence[float] | NDArray[np.float64] | None = None,
        queries: Sequence[str] = tuple(f"q{at}" for at in range(N_QUERIES)),
        similarity: Sequence[float] | None = None,
        drawn: Sequence[int] = (2, 0, 1, 1),
        injected: Sequence[bool] = (False,) * 4,
        step_seconds: float = 0.5,
        status: str = "finished",
        model: str = "models/small",
        **settings: Any,
    ) -> Path:
        """Add a run: ``after`` holds nDCG@10 of each query, ``papers`` the paper's; recall is one less a half."""
        flat = {"method": "ft", "max_steps": 4, "seed": 0, **settings}
        identity = json.loads(json.dumps(make_recipe(flat).flat()))
        path = self.home / f"run{self.count}"
        self.count += 1
        path.mkdir(parents=True)
        writer = RunWriter(path)
        writer.write_about(
            {
                "status": status,
                "identity": identity,
                "settings": {**identity, "learning_rate": 0.1},
                "data": {"source": data, "fingerprint": data},
                "model": {"source": model, "fingerprint": model},
                "seed": flat["seed"],
                "training": {"steps": flat["max_steps"]},
                "seconds": {"train": 1e9},
            }
        )
        if status != "finished":
            return path
        values = dict.fromkeys(DEFAULT_MEASURES, np.asarray(after))
        values[PAPERS] = np.asarray(after if papers is None else papers)
        values[RECALL] = np.asarray(after) - 0.5
        writer.write_measures(
            {
                "before": dict.fromkeys(DEFAULT_MEASURES, 0.1),
                "after": {name: float(column.mean()) for name, column in values.items()},
            }
        )
        own = {} if similarity is None else {"similarity": np.asarray(similarity, dtype=np.float32)}
        columns = {f"after {name}": column for name, column in values.items()}
        writer.write_per_query({"query_id": list(queries), **own, **columns})
        writer.write_pairs(
            {"query_id": ["a", "a", "b", "c"], "times_drawn": list(drawn), "injected": np.array(injected)}
        )
        rows = [{"step": at, "seconds": step_seconds} for at in range(flat["max_steps"])]
        writer.write_trace(rows, TRACE)
        return path

    def groups(self) -> list[Group]:
        return find_groups(self.home)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "runs")


def around(mean: float, seed: int = 0, count: int = N_QUERIES) -> NDArray[np.float64]:
    noise = np.random.default_rng(seed).normal(0, 0.1, count)
    return mean + noise - noise.mean()


def printed(comparison: Comparison, width: int = 160) -> str:
    screen = Console(width=width, highlight=False, no_color=True)
    with screen.capture() as captured:
        print_comparison(screen, comparison)
    return captured.get()


class TestGroups:
    def test_a_label_tells_a_methods_own_settings_and_what_else_differs(self, folder: Folder) -> None:
        folder.add(method="sp", k=0.25)
        folder.add(method="sp", k=0.5)
        folder.add(method="dp", levels="query", temperature=0.05)
        folder.add(method="dp", mask_known_positives=False)
        folder.add(method="ft", range=(10, 50), negatives="hard")
        assert [group.method for group in folder.groups()] == [
            "ft:negatives=hard:range=10:50",
            "sp",
            "sp:k=0.5",
            "dp:levels=query:temperature=0.05",
            "dp:mask_known_positives=false",
        ]

    def test_what_all_runs_share_is_not_told(self, folder: Folder) -> None:
        folder.add(method="ft", temperature=0.05)
        folder.add(method="dp", temperature=0.05)
        assert [group.method for group in folder.groups()] == ["ft", "dp"]
        assert label_of(find_runs(folder.home)[0][0], frozenset({"temperature"})) == "ft:temperature=0.05"

    def test_models_that_differ_are_told(self, folder: Folder) -> None:
        for model in ("models/small", "hub/large"):
            folder.add(model=model)
        assert [group.method for group in folder.groups()] == ["ft:model=large", "ft:model=small"]
        assert compare_runs(folder.home).models == ("models/small", "hub/large")

    def test_runs_that_lack_a_newer_setting_stand_beside_those_that_have_it(self, folder: Folder) -> None:
        folder.add(seed=0)
        path = folder.add(seed=1) / "run.json"
        about = json.loads(path.read_text())
        del about["identity"]["snapshots"]
        path.write_text(json.dumps(about))
        (group,) = folder.groups()
        assert (group.method, group.seeds) == ("ft", (0, 1))

    def test_groups_hold_seeds_and_are_told_apart_by_data_steps_and_method(self, folder: Folder) -> None:
        for seed, steps, data in product((2, 0), (8, 4), ("data/two", "data/one.jsonl")):
            folder.add(data=data, seed=seed, max_steps=steps)
        found = folder.groups()
        assert [(group.data, group.steps) for group in found] == [
            ("data/one.jsonl", 4), ("data/one.jsonl", 8), ("data/two", 4), ("data/two", 8),
        ]  # fmt: skip
        assert all(group.seeds == (0, 2) for group in found)
        assert [group.name for group in found] == ["one", "one", "two", "two"]

    def test_the_same_run_twice_is_refused(self, folder: Folder) -> None:
        first, second = folder.add(), folder.add()
        with pytest.raises(RunFolderError, match="are the same run twice") as caught:
            folder.groups()
        assert str(first) in str(caught.value)
        assert str(second) in str(caught.value)

    def test_unfinished_runs_are_left_out_and_named(self, folder: Folder) -> None:
        folder.add(method="ft")
        folder.add(method="dp")
        unfinished = folder.add(method="sp", status="running")
        (folder.home / "junk").mkdir()
        (folder.home / "junk" / "run.json").write_text("{")
        comparison = compare_runs(folder.home)
        assert [row.method for row in comparison.tables[0].rows] == ["ft", "dp"]
        assert comparison.unfinished == (unfinished,)
        assert f"left out, unfinished: {unfinished}" in printed(comparison, 400)
        with pytest.raises(RunFolderError, match="holds no finished run, only 1 unfinished"):
            compare_runs(unfinished)
        with pytest.raises(RunFolderError, match=r"holds no finished run$"):
            compare_runs(folder.home / "junk")

    @pytest.mark.parametrize(
        ("source", "name"), [("a/b.jsonl", "b"), ("a/b/", "b"), ("python:json", "python:json"), ("/", "/")]
    )
    def test_short_names(self, source: str, name: str) -> None:
        assert short_name(source) == name


class TestHolm:
    def test_by_hand(self) -> None:
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([0.6, 0.5]) == [1.0, 1.0]
        assert holm([]) == []

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
    def test_properties(self, values: list[float], random: Any) -> None:
        corrected = holm(values)
        for own, after in zip(values, corrected, strict=True):
            assert own <= after <= min(1, own * len(values))
        order = np.argsort(values, kind="stable")
        assert (np.diff(np.array(corrected)[order]) >= 0).all()
        assert corrected[order[0]] == pytest.approx(min(1, min(values) * len(values)))
        shuffled = random.sample(range(len(values)), len(values))
        assert holm([values[at] for at in shuffled]) == pytest.approx([corrected[at] for at in shuffled])

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.001, 0.5))
    def test_it_rejects_what_stepping_down_rejects(self, values: list[float], level: float) -> None:
        rejected = 0
        for place, value in enumerate(sorted(values)):
            if value * (len(values) - place) > level:
                break
            rejected += 1
        assert sum(value <= level for value in holm(values)) == rejected


class TestPairedTests:
    def test_they_are_of_values_averaged_over_the_seeds(self, folder: Folder) -> None:
        ours = [around(0.6, seed) for seed in (1, 2, 3)]
        theirs = [around(0.5, seed) for seed in (4, 5, 6)]
        for seed in range(3):
            folder.add(method="ft", seed=seed, after=theirs[seed])
            folder.add(method="dp", seed=seed, after=ours[seed])
        row = compare_runs(folder.home).tables[0].rows[1]
        test, expected = row.tests[PRIMARY], ttest_rel(np.mean(ours, axis=0), np.mean(theirs, axis=0))
        interval = expected.confidence_interval()
        assert test.queries == N_QUERIES
        assert test.difference == pytest.approx(0.1)
        assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
        assert test.t_test == test.t_test_holm == pytest.approx(expected.pvalue)
        assert test.won + test.lost == N_QUERIES
        assert row.measures[PRIMARY].mean == pytest.approx(0.6)
        assert row.measures[PRIMARY].deviation == pytest.approx(np.std([v.mean() for v in ours], ddof=1))

    @given(st.lists(st.integers(-4, 4), min_size=2, max_size=8).filter(lambda values: len(set(values)) > 1))
    def test_randomisation_flips_every_sign(self, values: list[int]) -> None:
        differences = np.array(values) / 8
        flipped = np.array([np.mean(differences * signs) for signs in product((1, -1), repeat=len(values))])
        expected = (np.abs(flipped) >= abs(differences.mean()) - 1e-12).mean()
        assert paired_test(differences).randomisation == pytest.approx(expected)

    def test_with_many_queries_it_is_near_the_t_test_and_the_same_each_time(self) -> None:
        differences = np.random.default_rng(1).normal(0.02, 0.1, 200)
        test = paired_test(differences)
        assert test.randomisation == pytest.approx(test.t_test, abs=0.01)
        assert test == paired_test(differences)
        assert (test.won, test.lost) == ((differences > 0).sum(), (differences < 0).sum())

    @pytest.mark.parametrize(("difference", "p"), [(0.0, 1.0), (0.25, 0.0)])
    def test_queries_that_all_moved_alike(self, difference: float, p: float) -> None:
        test = paired_test(np.full(4, difference))
        assert (test.t_test, test.randomisation, test.low, test.high) == (p, p, difference, difference)

    def test_queries_are_paired_by_id_where_seeds_test_others(self, folder: Folder) -> None:
        folder.add(method="ft", seed=0, queries=["a", "b", "c"], after=[0.1, 0.2, 0.3])
        folder.add(method="dp", seed=0, queries=["c", "a", "d"], after=[0.5, 0.2, 0.9])
        folder.add(method="ft", seed=1, queries=["c", "e"], after=[0.4, 0.0])
        folder.add(method="dp", seed=1, queries=["e", "c"], after=[0.5, 0.4])
        folder.add(method="dp", seed=2, queries=["a", "b"], after=[1.0, 1.0])
        baseline, group = folder.groups()
        names, differences = query_differences(group, baseline, PRIMARY)
        assert names == ["a", "c", "e"]
        assert differences.tolist() == pytest.approx([0.1, (0.2 + 0.0) / 2, 0.5])
        test = compare_runs(folder.home).tables[0].rows[1].tests[PRIMARY]
        assert test.queries == 3

    def test_where_no_seed_or_one_query_is_shared_there_is_no_test(self, folder: Folder) -> None:
        folder.add(method="ft", seed=0)
        folder.add(method="dp", seed=1)
        folder.add(method="sp", seed=0, queries=["q0", *"abcdefgh"])
        comparison = compare_runs(folder.home)
        assert [row.tests for row in comparison.tables[0].rows] == [{}, {}, {}]
        assert "baseline" in printed(comparison)

    def test_holm_counts_the_methods_of_one_table(self, folder: Folder) -> None:
        for method, seed in (("ft", 0), ("sp", 1), ("dp", 2)):
            folder.add(method=method, after=around(0.5 + 0.05 * seed, seed))
            folder.add(method=method, after=around(0.5 + 0.02 * seed, seed), max_steps=8)
        for table in compare_runs(folder.home).tables:
            tests = [row.tests[PRIMARY] for row in table.rows[1:]]
            for kind in ("t_test", "randomisation"):
                corrected = [getattr(test, f"{kind}_holm") for test in tests]
                assert corrected == pytest.approx(holm([getattr(test, kind) for test in tests]))
                assert corrected != pytest.approx([getattr(test, kind) for test in tests])


def test_average_ranks_share_ties_and_need_a_method_everywhere(folder: Folder) -> None:
    means = {"one": {"ft": 0.5, "sp": 0.6, "dp": 0.7}, "two": {"ft": 0.5, "sp": 0.5, "dp": 0.4}}
    for data, by_method in means.items():
        for method, mean in by_method.items():
            folder.add(data=data, method=method, after=[mean] * N_QUERIES)
    folder.add(data="one", method="rp")
    assert average_ranks(folder.groups(), PRIMARY) == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    comparison = compare_runs(folder.home)
    assert comparison.ranks[PRIMARY] == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    assert f"average rank by {PRIMARY}: sp 1.75, dp 2.00, ft 2.25" in printed(comparison)
    assert average_ranks([group for group in folder.groups() if group.method == "ft"], PRIMARY) == {}


def test_ranks_are_of_the_largest_number_of_steps(folder: Folder) -> None:
    for data, method, steps in product(("one", "two"), ("ft", "dp"), (4, 8)):
        folder.add(data=data, method=method, max_steps=steps, after=[0.5 + ((method == "dp") == (steps == 8)) / 8] * 9)
    assert compare_runs(folder.home).ranks[PRIMARY] == {"ft": 2.0, "dp": 1.0}
    assert compare_runs(folder.home).final("two").steps == 8


class TestRaces:
    @pytest.fixture
    def course(self, folder: Folder) -> Folder:
        means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
        for method, values in means.items():
            for steps, mean in zip((4, 8, 16), values, strict=True):
                seconds = 0.5 if method == "ft" else 0.75
                folder.add(method=method, max_steps=steps, after=[mean] * N_QUERIES, step_seconds=seconds)
        folder.add(data="data/short", method="ft")
        folder.add(data="data/short", method="dp")
        return folder

    def test_the_first_to_reach_the_baselines_best(self, course: Folder) -> None:
        found = {race.method: race for race in races(course.groups(), "ft")}
        assert list(found) == ["ft", "sp", "dp"]
        assert {race.data for race in found.values()} == {"data/one"}, "one number of steps is no race"
        assert (found["ft"].target, found["ft"].baseline_steps, found["ft"].steps) == (0.5, 8, 8)
        assert (found["sp"].steps, found["sp"].step_ratio, found["sp"].seconds_ratio) == (None, None, None)
        assert (found["dp"].steps, found["dp"].step_ratio, found["dp"].seconds_ratio) == (4, 0.5, 0.75)

    def test_the_baseline_is_told_first_whichever_it_is(self, course: Folder) -> None:
        text = printed(compare_runs(course.home, "dp"))
        head = text.index(f"one: dp's best {PRIMARY}, 0.700, at 16 steps; first as good:")
        assert head < text.index("ft: never")
        assert head < text.index("sp: never")
        assert "dp: 4 steps, 0.75 of the time" in printed(compare_runs(course.home))

    def test_without_the_baseline_there_is_none(self, course: Folder) -> None:
        assert races(course.groups(), "infobatch") == []


class TestCoverage:
    def test_shares_of_what_was_drawn(self, folder: Folder) -> None:
        folder.add(drawn=(3, 0, 1, 0))
        (group,) = folder.groups()
        found = coverage(group)
        assert found.queries == pytest.approx(2 / 3)
        assert found.pairs == pytest.approx(2 / 4)
        assert found.effective_queries == pytest.approx(16 / 10 / 3)
        assert found.effective_pairs == pytest.approx(16 / 10 / 4)
        assert found.noise_pairs is found.noise_draws is None

    def test_noise_and_means_over_the_seeds(self, folder: Folder) -> None:
        folder.add(seed=0, drawn=(3, 0, 1, 0), injected=(False, True, True, False))
        folder.add(seed=1, drawn=(1, 1, 1, 1), injected=(False, False, True, True))
        found = coverage(folder.groups()[0])
        assert found.noise_pairs == 0.5
        assert found.noise_draws == pytest.approx((1 / 4 + 2 / 4) / 2)
        assert found.pairs == pytest.approx((0.5 + 1) / 2)

    @given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any))
    def test_the_effective_share_lies_between_one_draw_and_all_alike(self, counts: list[int]) -> None:
        share = effective_share(np.array(counts))
        drawn = sum(count > 0 for count in counts)
        assert 1 / len(counts) - 1e-9 <= share <= drawn / len(counts) + 1e-9

    def test_all_alike_is_one(self) -> None:
        assert effective_share(np.array([4, 4, 4])) == 1


class TestDifficulty:
    def test_thirds_from_least_to_most_similar(self) -> None:
        assert tertiles(np.array([0.9, 0.1, 0.5, 0.2, 0.8, 0.4])).tolist() == [2, 0, 1, 0, 2, 1]

    @given(st.lists(st.floats(-1, 1), min_size=3, max_size=30))
    def test_thirds_are_even_and_in_order(self, values: list[float]) -> None:
        similarity = np.array(values)
        third = tertiles(similarity)
        sizes = np.bincount(third, minlength=3)
        assert sizes.max() - sizes.min() <= 1
        for low in (0, 1):
            assert similarity[third == low].max() <= similarity[third == low + 1].min()

    def test_means_of_each_third_over_the_seeds(self, folder: Folder) -> None:
        folder.add(seed=0, after=np.arange(9) / 10, similarity=np.arange(9)[::-1])
        folder.add(seed=1, after=np.full(9, 0.2), similarity=np.arange(9))
        (group,) = folder.groups()
        found = by_difficulty(group, PRIMARY)
        assert found == pytest.approx(
            dict(zip(BUCKETS, [(0.7 + 0.2) / 2, (0.4 + 0.2) / 2, (0.1 + 0.2) / 2], strict=True))
        )
        assert compare_runs(folder.home).tables[0].rows[0].difficulty[PRIMARY] == found

    def test_runs_of_earlier_versions_and_few_queries_have_none(self, folder: Folder) -> None:
        folder.add(seed=0, similarity=np.arange(9))
        folder.add(seed=1)
        folder.add(method="dp", after=[0.5, 0.6], queries=["a", "b"], similarity=[0, 1])
        assert [by_difficulty(group, PRIMARY) for group in folder.groups()] == [None, None]
        assert [row.difficulty for row in compare_runs(folder.home).tables[0].rows] == [{}, {}]


def test_two_ndcgs_that_name_different_winners(folder: Folder) -> None:
    folder.add(method="ft", after=[0.5] * 9, papers=[0.9] * 9)
    folder.add(method="dp", after=[0.6] * 9, papers=[0.8] * 9)
    assert winners(folder.groups()) == {PRIMARY: "dp", PAPERS: "ft"}
    comparison = compare_runs(folder.home)
    assert comparison.tables[0].disagree
    assert f"the two nDCGs name different winners: by {PRIMARY}: dp; by {PAPERS}: ft" in printed(comparison)
    folder.add(method="dp", data="data/two")
    assert not compare_runs(folder.home).tables[1].disagree


class TestComparison:
    def test_which_baseline(self, folder: Folder) -> None:
        folder.add(method="dp")
        assert compare_runs(folder.home).baseline is None
        assert "p:" not in printed(compare_runs(folder.home))
        folder.add(method="sp")
        assert compare_runs(folder.home).baseline == "sp"
        folder.add(method="ft")
        assert compare_runs(folder.home).baseline == "ft"
        assert compare_runs(folder.home, "dp").baseline == "dp"
        with pytest.raises(SettingError, match="--baseline rp: no run is called so; there are ft, sp, dp"):
            compare_runs(folder.home, "rp")

    def test_one_seed_and_one_method(self, folder: Folder) -> None:
        path = folder.add(method="dp", after=[0.25] * 9)
        comparison = compare_runs(path)
        (row,) = comparison.tables[0].rows
        assert row.measures[PRIMARY].deviation is None
        assert (row.tests, row.step_ratio) == ({}, None)
        assert (comparison.ranks, comparison.races, comparison.unfinished) == ({}, (), ())
        assert " 0.250 " in printed(comparison)

    def test_costs(self, folder: Folder) -> None:
        folder.add(method="ft", step_seconds=0.5)
        folder.add(method="dp", step_seconds=0.75)
        first, second = compare_runs(folder.home).tables[0].rows
        assert (first.seconds_a_step, first.step_ratio, second.step_ratio) == (0.5, 1.0, 1.5)
        assert second.training_seconds == 3.0, "of the steps, whatever the sittings took"

    def test_all_of_it_goes_to_json(self, folder: Folder) -> None:
        for method, steps, data in product(("ft", "dp"), (4, 8), ("one", "two")):
            folder.add(method=method, max_steps=steps, data=data, after=around(0.5, steps), similarity=range(9))
        comparison = compare_runs(folder.home)
        told = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
        assert told["baseline"] == "ft"
        assert [(table["name"], table["steps"]) for table in told["tables"]] == list(product(("one", "two"), (4, 8)))
        assert told["tables"][0]["disagree"] is False
        assert set(told["tables"][0]["rows"][1]["tests"]) == {PRIMARY, PAPERS, RECALL}
        assert len(told["races"]) == 4
        assert set(told["average_ranks"][RECALL]) == {"ft", "dp"}

    def test_the_untrained_model_takes_part(self, folder: Folder) -> None:
        folder.add(method="ft", after=around(0.05))
        folder.add(method="dp", after=around(0.02))
        for path in folder.home.glob("run*"):
            table = Run.open(path).per_query()
            columns = {name: table[name] for name in table.column_names}
            RunWriter(path).write_per_query({**columns, f"before {PRIMARY}": np.full(table.num_rows, 0.1)})
        comparison = compare_runs(folder.home)
        (table,) = comparison.tables
        assert table.best(PRIMARY) == "untrained"
        ft = table.rows[0]
        assert ft.gain is not None
        differences = Run.open(folder.home / "run0").per_query()[f"after {PRIMARY}"].to_numpy() - 0.1
        assert ft.gain.difference == pytest.approx(differences.mean())
        alone = ttest_rel(differences, np.zeros(len(differences))).pvalue
        assert ft.gain.t_test == pytest.approx(alone)
        assert ft.gain.t_test_holm >= ft.gain.t_test
        assert f"no method is above the untrained model in {PRIMARY}: keep it" in printed(comparison)

    def test_what_all_runs_share_is_told(self, folder: Folder) -> None:
        for method in ("ft", "dp"):
            folder.add(method=method, temperature=0.05, noise="random", noise_share=0.3)
        comparison = compare_runs(folder.home)
        assert comparison.shared == {"temperature": 0.05, "noise": "random", "noise_share": 0.3}
        assert "all runs: temperature=0.05, noise=random, noise_share=0.3" in printed(comparison)

    def test_data_sets_of_one_name_are_told_apart(self, folder: Folder) -> None:
        for data in ("a/one", "b/one", "two"):
            folder.add(data=data)
        assert {table.name for table in compare_runs(folder.home).tables} == {"a/one", "b/one", "two"}

    def test_cells_that_a_grid_lacks_are_counted(self, folder: Folder) -> None:
        folder.add()
        (folder.home / "grid.json").write_text(json.dumps({"cells": ["run0", "run1", "run2"]}))
        comparison = compare_runs(folder.home)
        assert (comparison.planned, comparison.missing) == (3, 2)
        assert "2 of the grid's 3 cells are not finished" in printed(comparison)

    def test_labels_are_printed_as_they_are(self, folder: Folder) -> None:
        for steps in (4, 8):
            folder.add(method="dp", data="data/[bold]x", max_steps=steps)
            folder.add(method="ft", data="data/[bold]x", max_steps=steps)
        assert printed(compare_runs(folder.home)).count("[bold]x") == 4
