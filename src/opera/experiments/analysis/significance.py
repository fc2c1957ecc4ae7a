"""Paired tests of methods over the test queries, corrected for the number of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from opera.core.intervals import EQUAL, mean_interval
from opera.experiments.analysis.groups import Group

LEVEL = 0.05
"""Significance level of the corrected t-test."""


@dataclass(frozen=True)
class PairedTest:
    """A method against the baseline over test queries, after averaging each query's difference over
    the seeds.

    The queries are the sample: the p-values say whether the difference would hold on other queries,
    for the models of these seeds. The test is Student's, paired and two-sided.

    Attributes:
        queries: number of paired queries.
        difference: mean of method minus baseline.
        low: lower end of the test's interval: 95% for one method, wider where p is corrected for
            several, so that it holds 0 just where the method is not significantly different
            (Serlin, 1993).
        high: upper end of the interval.
        t_test: p of the paired t-test.
        t_test_holm: ``t_test``, Holm-corrected over the methods compared.
        won: queries on which the method is better.
        lost: queries on which it is worse.
    """

    queries: int
    difference: float
    low: float
    high: float
    t_test: float
    t_test_holm: float
    won: int
    lost: int

    @property
    def significant(self) -> bool:
        """Whether the corrected t-test has p below :data:`LEVEL`."""
        return self.t_test_holm < LEVEL


def query_differences(
    group: Group, baseline: Group, measure: str
) -> tuple[list[str], NDArray[np.float64]]:
    """Compute method minus baseline on each test query, averaged over the seeds that both have.

    Where seeds draw different test splits, a query is averaged over the seeds that test it. The
    query ids are sorted; float64 ``[queries]``; both empty where no seed or query is shared.
    """
    ids: list[str] = []
    differences = []

    def by_query(side: Group, seed: int) -> dict[str, float]:
        table = side.query_tables[side.seeds.index(seed)]
        values = table[f"after {measure}"].to_numpy()
        return dict(zip(table["query_id"].to_pylist(), values, strict=True))

    for seed in sorted(set(group.seeds) & set(baseline.seeds)):
        ours, theirs = by_query(group, seed), by_query(baseline, seed)
        shared = sorted(ours.keys() & theirs.keys())
        ids += shared
        differences.append(np.array([ours[query] - theirs[query] for query in shared]))
    return _mean_by_query(ids, differences)


def training_differences(
    group: Group, measure: str, later: str = "after", earlier: str = "before"
) -> NDArray[np.float64]:
    """Compute one model's measure minus another's on each test query: float64 ``[queries]``.

    Averaged over the seeds; empty where a run lacks the values of one of them. The models are
    ``before``, the untrained one, ``fine_tuned``, and ``after``, the one handed over.
    """
    ids: list[str] = []
    differences = []
    for table in group.query_tables:
        if not {f"{earlier} {measure}", f"{later} {measure}"} <= set(table.column_names):
            return np.empty(0)
        ids += table["query_id"].to_pylist()
        differences.append(
            table[f"{later} {measure}"].to_numpy() - table[f"{earlier} {measure}"].to_numpy()
        )
    return _mean_by_query(ids, differences)[1]


def paired_test(differences: NDArray[np.float64]) -> PairedTest:
    """Test differences, one per query, float64 ``[queries]``, against zero, not corrected."""
    mean, (low, high) = float(differences.mean()), mean_interval(differences)
    if np.ptp(differences) < EQUAL:  # there is no variance to test against
        t_test = 1.0 if abs(mean) < EQUAL else 0.0
    else:
        t_test = float(ttest_1samp(differences, 0).pvalue)
    return PairedTest(
        queries=len(differences),
        difference=mean,
        low=low,
        high=high,
        t_test=t_test,
        t_test_holm=t_test,
        won=int((differences > EQUAL).sum()),
        lost=int((differences < -EQUAL).sum()),
    )


def paired_tests(groups: Sequence[Group], baseline: Group, measure: str) -> dict[str, PairedTest]:
    """Test each group against the baseline; by label, Holm-corrected over the groups.

    All are on the same data with the same steps. Groups that share fewer than two queries and seeds
    with the baseline are left out.
    """
    return corrected_tests(
        {group.method: query_differences(group, baseline, measure)[1] for group in groups}
    )


def paired_tests_within(
    groups: Sequence[Group], measure: str, later: str = "after", earlier: str = "before"
) -> dict[str, PairedTest]:
    """Test one model of each group against another; by label, Holm-corrected over the groups."""
    return corrected_tests(
        {group.method: training_differences(group, measure, later, earlier) for group in groups}
    )


def holm(values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method.

    The smallest is multiplied by the number of values, the next by one less, and so on; no
    corrected value is below the one before it.
    """
    corrected, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(np.argsort(values, kind="stable")):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = highest
    return corrected


def _mean_by_query(
    ids: Sequence[str], differences: Sequence[NDArray[np.float64]]
) -> tuple[list[str], NDArray[np.float64]]:
    """Average the differences, one array per seed, of each query id."""
    if not ids:
        return [], np.empty(0)
    names, index = np.unique(ids, return_inverse=True)
    means = np.bincount(index, weights=np.concatenate(differences)) / np.bincount(index)
    return names.tolist(), np.asarray(means)


def corrected_tests(differences: Mapping[str, NDArray[np.float64]]) -> dict[str, PairedTest]:
    """Test the differences of each method, float64 ``[queries]``; p and intervals are corrected."""
    tests = {label: paired_test(values) for label, values in differences.items() if len(values) > 1}
    corrected = holm([test.t_test for test in tests.values()])
    for (label, test), p in zip(list(tests.items()), corrected, strict=True):
        factor = p / test.t_test if test.t_test > 0 else 1.0
        low, high = mean_interval(differences[label], 1 - LEVEL / factor)
        tests[label] = replace(test, t_test_holm=p, low=low, high=high)
    return tests
