"""Paired tests over the queries, and Holm's correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from grids import N_QUERIES, RunsFolder, around
from opera.experiments.analysis import PRIMARY, analyse_runs, holm, paired_test, query_differences
from opera.experiments.analysis.significance import LEVEL, corrected_tests


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
    def test_they_are_of_values_averaged_over_the_seeds(self, folder: RunsFolder) -> None:
        ours = [around(0.6, seed) for seed in (1, 2, 3)]
        theirs = [around(0.5, seed) for seed in (4, 5, 6)]
        for seed in range(3):
            folder.add(method="ft", seed=seed, after=theirs[seed])
            folder.add(method="dp", seed=seed, after=ours[seed])
        row = analyse_runs(folder.home).tables[0].rows[1]
        test, expected = row.tests[PRIMARY], ttest_rel(np.mean(ours, axis=0), np.mean(theirs, axis=0))
        interval = expected.confidence_interval()
        assert test.queries == N_QUERIES
        assert test.difference == pytest.approx(0.1)
        assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
        assert test.t_test == test.t_test_holm == pytest.approx(expected.pvalue)
        assert test.won + test.lost == N_QUERIES
        assert row.measures[PRIMARY].mean == pytest.approx(0.6)
        assert row.measures[PRIMARY].std == pytest.approx(np.std([v.mean() for v in ours], ddof=1))

    @given(st.lists(st.floats(-1, 1), min_size=3, max_size=9), st.integers(1, 6))
    def test_the_interval_agrees_with_the_corrected_test(self, values: list[float], methods: int) -> None:
        rng = np.random.default_rng(0)
        differences = {f"m{n}": np.array(values) + rng.normal(0.3, 0.4, len(values)) for n in range(methods)}
        for test in corrected_tests(differences).values():
            assume(abs(test.t_test_holm - LEVEL) > 1e-6)
            assert test.significant is not (test.low <= 0 <= test.high)

    @pytest.mark.parametrize(("difference", "p"), [(0.0, 1.0), (0.25, 0.0)])
    def test_queries_that_all_moved_alike(self, difference: float, p: float) -> None:
        test = paired_test(np.full(4, difference))
        assert (test.t_test, test.low, test.high) == (p, difference, difference)

    def test_queries_are_paired_by_id_where_seeds_test_others(self, folder: RunsFolder) -> None:
        folder.add(method="ft", seed=0, queries=["a", "b", "c"], after=[0.1, 0.2, 0.3])
        folder.add(method="dp", seed=0, queries=["c", "a", "d"], after=[0.5, 0.2, 0.9])
        folder.add(method="ft", seed=1, queries=["c", "e"], after=[0.4, 0.0])
        folder.add(method="dp", seed=1, queries=["e", "c"], after=[0.5, 0.4])
        folder.add(method="dp", seed=2, queries=["a", "b"], after=[1.0, 1.0])
        baseline, group = folder.groups()
        names, differences = query_differences(group, baseline, PRIMARY)
        assert names == ["a", "c", "e"]
        assert differences.tolist() == pytest.approx([0.1, (0.2 + 0.0) / 2, 0.5])
        test = analyse_runs(folder.home).tables[0].rows[1].tests[PRIMARY]
        assert test.queries == 3

    def test_where_no_seed_or_one_query_is_shared_there_is_no_test(self, folder: RunsFolder) -> None:
        folder.add(method="ft", seed=0)
        folder.add(method="dp", seed=1)
        folder.add(method="sp", seed=0, queries=["q0", *"abcdefgh"])
        comparison = analyse_runs(folder.home)
        assert [row.tests for row in comparison.tables[0].rows] == [{}, {}, {}]

    def test_holm_counts_the_methods_of_one_table(self, folder: RunsFolder) -> None:
        for method, seed in (("ft", 0), ("sp", 1), ("dp", 2)):
            folder.add(method=method, after=around(0.5 + 0.05 * seed, seed))
            folder.add(method=method, after=around(0.5 + 0.02 * seed, seed), max_steps=8)
        for table in analyse_runs(folder.home).tables:
            tests = [row.tests[PRIMARY] for row in table.rows[1:]]
            corrected = [test.t_test_holm for test in tests]
            assert corrected == pytest.approx(holm([test.t_test for test in tests]))
            assert corrected != pytest.approx([test.t_test for test in tests])
