"""Is a method better than the baseline? Paired tests over the test queries, corrected for the number of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import monte_carlo_test, permutation_test, ttest_1samp

from opera.core.rng import generator
from opera.experiments.analysis.groups import Group

RESAMPLES = 9999
BATCH_CELLS = 2_000_000
EQUAL = 1e-12


@dataclass(frozen=True)
class PairedTest:
    """A method against the baseline, over test queries; each one's difference is averaged over the seeds first.

    The queries are the sample: what the p-values tell is whether the difference would hold on other queries, for these
    seeds' models. Both are two-sided.

    Attributes:
        queries: how many were paired.
        difference: mean of method minus baseline.
        low: lower end of the t-test's 95% confidence interval.
        high: its upper end.
        t_test: p of the paired t-test.
        randomisation: p of the paired randomisation test: signs flipped at random, 9,999 times.
        t_test_holm: the first, Holm-corrected over the methods that are compared.
        randomisation_holm: the second, likewise.
        won: queries on which the method is better.
        lost: queries on which it is worse.
    """

    queries: int
    difference: float
    low: float
    high: float
    t_test: float
    randomisation: float
    t_test_holm: float
    randomisation_holm: float
    won: int
    lost: int


def query_differences(group: Group, baseline: Group, measure: str) -> tuple[list[str], NDArray[np.float64]]:
    """Method minus baseline on each test query, averaged over the seeds that both have.

    Where seeds draw different test splits, a query is averaged over the seeds that test it.

    Returns:
        The queries' ids, sorted, and float64 ``[queries]``; both empty where no seed or query is shared.
    """
    ids: list[str] = []
    parts = []
    for seed in sorted(set(group.seeds) & set(baseline.seeds)):
        ours, theirs = (
            dict(zip(table["query_id"].to_pylist(), table[f"after {measure}"].to_numpy(), strict=True))
            for table in (side.query_tables[side.seeds.index(seed)] for side in (group, baseline))
        )
        shared = sorted(ours.keys() & theirs.keys())
        ids += shared
        parts.append(np.array([ours[query] - theirs[query] for query in shared]))
    if not ids:
        return [], np.empty(0)
    names, place = np.unique(ids, return_inverse=True)
    return names.tolist(), np.bincount(place, weights=np.concatenate(parts)) / np.bincount(place)


def differences_from_before(group: Group, measure: str) -> NDArray[np.float64]:
    """After minus before training on each test query, averaged over the seeds: float64 ``[queries]``."""
    names, changes = [], []
    for table in group.query_tables:
        if f"before {measure}" not in table.column_names:
            return np.empty(0)
        names += table["query_id"].to_pylist()
        changes.append(table[f"after {measure}"].to_numpy() - table[f"before {measure}"].to_numpy())
    _, place = np.unique(names, return_inverse=True)
    return np.asarray(np.bincount(place, weights=np.concatenate(changes)) / np.bincount(place))


def paired_test(differences: NDArray[np.float64], seed: int = 0) -> PairedTest:
    """Test differences, float64 ``[queries]``, against zero; the corrected values are not yet corrected.

    Args:
        differences: of each query.
        seed: of the sign flips.
    """
    won, lost = int((differences > EQUAL).sum()), int((differences < -EQUAL).sum())
    mean = float(differences.mean())
    if np.ptp(differences) < EQUAL:  # every query moved alike: there is no spread to test against
        p = 1.0 if abs(mean) < EQUAL else 0.0
        return PairedTest(len(differences), mean, mean, mean, p, p, p, p, won, lost)
    student = ttest_1samp(differences, 0)
    interval = student.confidence_interval(0.95)
    t_test, randomisation = float(student.pvalue), sign_flip_p(differences, seed)
    return PairedTest(
        len(differences),
        mean,
        float(interval.low),
        float(interval.high),
        t_test,
        randomisation,
        t_test,
        randomisation,
        won,
        lost,
    )


def sign_flip_p(differences: NDArray[np.float64], seed: int = 0) -> float:
    """p of the paired randomisation test: how often a mean as far from zero comes of random signs, two-sided.

    All signs are tried where they are no more than ``RESAMPLES``, else as many are drawn.

    Args:
        differences: of each query, float64 ``[queries]``.
        seed: of the signs.
    """
    if 2 ** min(len(differences), 64) <= RESAMPLES:
        return float(permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue)
    rng = generator(seed, "analysis.randomisation")

    def flipped(size: tuple[int, ...]) -> NDArray[np.float64]:
        return np.where(rng.integers(2, size=size, dtype=np.int8), differences, -differences)

    # The same test as SciPy's permutation_test makes of one sample, some five times as fast.
    drawn = monte_carlo_test(
        differences,
        flipped,
        np.mean,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, BATCH_CELLS // len(differences)),
    )
    return float(drawn.pvalue)


def paired_tests(groups: Sequence[Group], baseline: Group, measure: str) -> dict[str, PairedTest]:
    """Test each group against the baseline, of the same data and steps; by label, Holm-corrected over the groups.

    Groups that share no query and seed with the baseline, or have one query alone, are left out.
    """
    return _corrected({group.method: query_differences(group, baseline, measure)[1] for group in groups})


def tests_from_before(groups: Sequence[Group], measure: str) -> dict[str, PairedTest]:
    """Test each group against the untrained model; by label, Holm-corrected over the groups."""
    return _corrected({group.method: differences_from_before(group, measure) for group in groups})


def _corrected(differences: Mapping[str, NDArray[np.float64]]) -> dict[str, PairedTest]:
    tests = {label: paired_test(found) for label, found in differences.items() if len(found) > 1}
    student = holm([test.t_test for test in tests.values()])
    flips = holm([test.randomisation for test in tests.values()])
    return {
        label: replace(test, t_test_holm=t, randomisation_holm=f)
        for (label, test), t, f in zip(tests.items(), student, flips, strict=True)
    }


def holm(values: Sequence[float]) -> list[float]:
    """Holm's correction: the smallest p times how many there are, the next times one less, and never falling."""
    corrected, highest = [0.0] * len(values), 0.0
    for place, at in enumerate(np.argsort(values, kind="stable")):
        highest = max(highest, min(1.0, (len(values) - place) * values[at]))
        corrected[at] = highest
    return corrected
