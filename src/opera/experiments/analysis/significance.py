"""Paired tests of methods over test queries, corrected for the number of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from opera.core.intervals import DIFFERENCE, EQUAL, equal_values_p, mean_interval
from opera.core.measure_names import column
from opera.experiments.analysis.groups import Group

LEVEL = 0.05
"""Significance level of the corrected t-test."""


@dataclass(frozen=True)
class PairedTest:
    """A paired, two-sided t-test of a method against the baseline over test queries.

    A query's difference is its mean over the seeds. The queries are the sample: the p-values say
    whether the difference would hold on other queries, for the models of these seeds.

    Attributes:
        queries: number of paired queries.
        difference: mean of method minus baseline.
        low: lower end of the 95% interval. The interval is wider if p is corrected for several
            methods: it holds 0 only if the difference is not significant (Serlin, 1993).
        high: upper end of the interval.
        t_test: p of the paired t-test.
        t_test_holm: ``t_test``, Holm-corrected over the compared methods.
        won: number of queries on which the method is better.
        lost: number of queries on which the method is worse.
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

    @property
    def better(self) -> bool:
        """Whether the method is significantly better."""
        return self.significant and self.difference > 0


QueryValues = Mapping[tuple[int, str], float]
"""A value by seed and id of the test query."""


def query_values(group: Group, column: str) -> QueryValues:
    """A column of the table of test queries; empty if a run lacks it."""
    values: dict[tuple[int, str], float] = {}
    for seed, table in zip(group.seeds, group.query_tables, strict=True):
        if column not in table.column_names:
            return {}
        keys = ((seed, query) for query in table["query_id"].to_pylist())
        values.update(zip(keys, table[column].to_numpy(), strict=True))
    return values


def differences(values: QueryValues, reference: QueryValues) -> NDArray[np.float64]:
    """Values minus reference for each query, in order of query ids: float64 ``[queries]``.

    A query's difference is its mean over the seeds that have both values. So it works if the seeds
    have different test splits.
    """
    shared = sorted(values.keys() & reference.keys())
    _, index = np.unique([query for _, query in shared], return_inverse=True)
    weights = [values[key] - reference[key] for key in shared]
    return np.asarray(np.bincount(index, weights=weights) / np.bincount(index))


def paired_test(differences: NDArray[np.float64]) -> PairedTest:
    """Test differences, float64 ``[queries]``, against zero, without a correction."""
    mean = float(differences.mean())
    low, high = mean_interval(differences, bounds=DIFFERENCE)
    if np.ptp(differences) < EQUAL:  # without variance there is no t-test
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
    """Test groups against the baseline; by label, Holm-corrected over the groups.

    All groups have the same data and steps. A group is left out if it shares fewer than two
    queries with the baseline.
    """
    final = column("final", measure)
    reference = query_values(baseline, final)
    return corrected_tests(
        {group.method: differences(query_values(group, final), reference) for group in groups}
    )


def paired_tests_within(
    groups: Sequence[Group], measure: str, later: str = "final", earlier: str = "base"
) -> dict[str, PairedTest]:
    """Test two models of a group against each other; by label, Holm-corrected over the groups.

    The models are ``base``, ``fine_tuned`` and ``final``. A group is left out if it lacks the
    values of a model.
    """
    return corrected_tests(
        {
            group.method: differences(
                *(query_values(group, column(model, measure)) for model in (later, earlier))
            )
            for group in groups
        }
    )


def holm(values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method.

    The smallest p is multiplied by the number of values, the next by one less, and so on. No
    corrected value may be below the previous one.
    """
    order, corrected = np.argsort(values, kind="stable"), np.empty(len(values))
    scaled = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(scaled, 1.0))
    return corrected.tolist()


def corrected_tests(
    differences_by_label: Mapping[str, NDArray[np.float64]],
) -> dict[str, PairedTest]:
    """Test the methods' differences, float64 ``[queries]``; corrects p and intervals."""
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
