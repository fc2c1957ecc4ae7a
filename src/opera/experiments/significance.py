"""Paired tests of methods over test queries, corrected for the number of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from opera.core.figures import (
    DIFFERENCE,
    EQUAL,
    PRIMARY,
    column,
    equal_values_p,
    mean_interval,
    points,
)
from opera.experiments.groups import Group

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
    def interval_in_points(self) -> str:
        """The interval for a table: ``+0.3 to +2.1``."""
        return f"{points(self.low)} to {points(self.high)}"

    @property
    def better(self) -> bool:
        """Whether the method is significantly better."""
        return self.significant and self.difference > 0


QueryValues = Mapping[tuple[int, str], float]
"""A value by seed and id of the test query."""


def query_values(group: Group, column: str) -> QueryValues:
    """A column of the table of test queries; empty if a run lacks it."""
    if not all(column in table.column_names for table in group.query_tables):
        return {}
    return {
        (seed, query): value
        for seed, table in zip(group.seeds, group.query_tables, strict=True)
        for query, value in zip(
            table["query_id"].to_pylist(), table[column].to_pylist(), strict=True
        )
    }


def differences(values: QueryValues, reference: QueryValues) -> NDArray[np.float64]:
    """Values minus reference for each query, in order of query ids: float64 ``[queries]``.

    A query's difference is its mean over the seeds that have both values. So it works if the seeds
    have different test splits.
    """
    by_query: dict[str, list[float]] = {}
    for seed, query in sorted(values.keys() & reference.keys()):
        by_query.setdefault(query, []).append(values[seed, query] - reference[seed, query])
    return np.array([np.mean(by_query[query]) for query in sorted(by_query)])


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
    groups: Sequence[Group], later: str = "final", earlier: str = "base"
) -> dict[str, PairedTest]:
    """Test two models of a group by the main measure; by label, Holm-corrected over the groups.

    The models are ``base``, ``fine_tuned`` and ``final``. A group is left out if it lacks the
    values of a model.
    """
    return corrected_tests(
        {
            group.method: differences(
                *(query_values(group, column(model, PRIMARY)) for model in (later, earlier))
            )
            for group in groups
        }
    )


def corrected_tests(
    differences_by_label: Mapping[str, NDArray[np.float64]],
) -> dict[str, PairedTest]:
    """Test the methods' differences, float64 ``[queries]``; corrects p and intervals."""
    samples = {label: values for label, values in differences_by_label.items() if len(values) > 1}
    p_values = [t_test(values) for values in samples.values()]
    return {
        label: paired_test(values, p, corrected)
        for (label, values), p, corrected in zip(
            samples.items(), p_values, holm(p_values), strict=True
        )
    }


def t_test(differences: NDArray[np.float64]) -> float:
    """The p-value of differences, float64 ``[queries]``, against zero, without a correction."""
    if np.ptp(differences) >= EQUAL:
        return float(ttest_1samp(differences, 0).pvalue)
    # a t-test needs variance
    return 1.0 if abs(differences.mean()) < EQUAL else equal_values_p(len(differences))


def holm(values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method.

    The smallest p is multiplied by the number of values, the next by one less, and so on. No
    corrected value may be below the previous one.
    """
    order, corrected = np.argsort(values, kind="stable"), np.empty(len(values))
    scaled = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(scaled, 1.0))
    return corrected.tolist()


def paired_test(differences: NDArray[np.float64], p: float, corrected: float) -> PairedTest:
    """Describe differences, float64 ``[queries]``, with an interval that agrees with the corrected
    p-value.
    """
    factor = corrected / p if p > 0 else 1.0
    low, high = mean_interval(differences, 1 - LEVEL / factor, DIFFERENCE)
    return PairedTest(
        queries=len(differences),
        difference=float(differences.mean()),
        low=low,
        high=high,
        t_test=p,
        t_test_holm=corrected,
        won=int((differences > EQUAL).sum()),
        lost=int((differences < -EQUAL).sum()),
    )
