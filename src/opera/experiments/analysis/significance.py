"""Paired tests of methods over the test queries, corrected for the number of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from opera.core.intervals import DIFFERENCE, EQUAL, equal_values_p, mean_interval
from opera.experiments.analysis.groups import Group
from opera.runs.names import column

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


QueryValues = Mapping[tuple[int, str], float]
"""A value by seed and id of the test query."""


def query_values(group: Group, column: str) -> QueryValues:
    """A column of the table of test queries; empty where a run lacks it."""
    values: dict[tuple[int, str], float] = {}
    for seed, table in zip(group.seeds, group.query_tables, strict=True):
        if column not in table.column_names:
            return {}
        keys = ((seed, query) for query in table["query_id"].to_pylist())
        values.update(zip(keys, table[column].to_numpy(), strict=True))
    return values


def differences(ours: QueryValues, theirs: QueryValues) -> NDArray[np.float64]:
    """Ours minus theirs on each query, averaged over the seeds that have both; by query id.

    Where seeds draw different test splits, a query is averaged over the seeds that test it.
    float64 ``[queries]``.
    """
    shared = sorted(ours.keys() & theirs.keys())
    _, index = np.unique([query for _, query in shared], return_inverse=True)
    values = [ours[key] - theirs[key] for key in shared]
    return np.asarray(np.bincount(index, weights=values) / np.bincount(index))


def paired_test(differences: NDArray[np.float64]) -> PairedTest:
    """Test differences, one per query, float64 ``[queries]``, against zero, not corrected."""
    mean = float(differences.mean())
    low, high = mean_interval(differences, bounds=DIFFERENCE)
    if np.ptp(differences) < EQUAL:  # there is no variance to test against
        t_test = 1.0 if abs(mean) < EQUAL else equal_values_p(len(differences))
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
    final = column("final", measure)
    theirs = query_values(baseline, final)
    return corrected_tests({g.method: differences(query_values(g, final), theirs) for g in groups})


def paired_tests_within(
    groups: Sequence[Group], measure: str, later: str = "final", earlier: str = "base"
) -> dict[str, PairedTest]:
    """Test one model of each group against another; by label, Holm-corrected over the groups.

    The models are ``base``, the untrained one, ``fine_tuned``, and ``final``, the one handed
    over. Groups without the values of one of them are left out.
    """
    return corrected_tests(
        {
            group.method: differences(
                *(query_values(group, column(when, measure)) for when in (later, earlier))
            )
            for group in groups
        }
    )


def holm(values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method.

    The smallest is multiplied by the number of values, the next by one less, and so on; no
    corrected value is below the one before it.
    """
    order, corrected = np.argsort(values, kind="stable"), np.empty(len(values))
    scaled = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(scaled, 1.0))
    return corrected.tolist()


def corrected_tests(
    differences_by_label: Mapping[str, NDArray[np.float64]],
) -> dict[str, PairedTest]:
    """Test the differences of each method, float64 ``[queries]``; p and intervals are corrected."""
    tests = {
        label: paired_test(values)
        for label, values in differences_by_label.items()
        if len(values) > 1
    }
    corrected = holm([test.t_test for test in tests.values()])
    for (label, test), p in zip(list(tests.items()), corrected, strict=True):
        factor = p / test.t_test if test.t_test > 0 else 1.0
        low, high = mean_interval(differences_by_label[label], 1 - LEVEL / factor, DIFFERENCE)
        tests[label] = replace(test, t_test_holm=p, low=low, high=high)
    return tests
