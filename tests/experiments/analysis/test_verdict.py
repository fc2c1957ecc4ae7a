"""The conclusion: which model to use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grids import N_QUERIES, RunsFolder, around
from opera.core.measure_names import PRIMARY
from opera.experiments.analysis import (
    Comparison,
    PairedTest,
    analyse_runs,
)
from opera.experiments.analysis.verdict import conclusion

TEST = PairedTest(9, 0.02, 0.011, 0.034, 0.001, 0.003, 7, 2)
BETTER, WORSE, SAME = TEST, replace(TEST, difference=-0.1), replace(TEST, t_test_holm=0.3)


def with_tests(
    comparison: Comparison, tests: dict[str, PairedTest | None], gain: PairedTest | None = None
) -> Comparison:
    """The comparison with made-up tests: a row per label, the baseline first; ``None`` for no test."""
    (table,) = comparison.tables
    rows = [
        replace(table.rows[0], method=label, tests={} if test is None else {PRIMARY: test}, gain=gain)
        for label, test in {"ft": None, **tests}.items()
    ]
    return replace(comparison, tables=(replace(table, rows=tuple(rows)),))


@pytest.fixture
def comparison(folder: RunsFolder) -> Comparison:
    for method, mean in (("ft", 0.5), ("dp", 0.6)):
        for seed in (0, 1):
            folder.add(method=method, seed=seed, final=around(mean, seed), base=[0.3] * N_QUERIES)
    return analyse_runs(folder.home)


def test_the_conclusion_says_which_model_to_use(comparison: Comparison) -> None:
    def sentence(gain: PairedTest | None = BETTER, **tests: PairedTest | None) -> str:
        (table,) = with_tests(comparison, tests, gain).tables
        return conclusion(table, "ft")

    assert sentence(dp=BETTER) == "Use dp: +2.0 points of nDCG@10 over ft (95% interval +1.1 to +3.4)"
    assert sentence(dp=BETTER, sp=replace(BETTER, difference=0.03)).startswith("Use sp: +3.0 points of nDCG@10")
    assert sentence(dp=SAME) == "Keep ft: no measurable difference"
    assert sentence(dp=SAME, sp=WORSE) == "Keep ft: no other method is measurably better"
    assert sentence(SAME, dp=BETTER) == "Keep the base model: no method is measurably better"
    assert sentence(WORSE, dp=SAME) == "Keep the base model: no method is measurably better"
    assert sentence(None, dp=BETTER) == "No conclusion: there are too few test queries"


def test_a_method_that_beats_the_base_model_alone_is_used(comparison: Comparison) -> None:
    (table,) = with_tests(comparison, {"dp": SAME}, gain=BETTER).tables
    rows = (replace(table.rows[0], gain=SAME), table.rows[1])
    assert (
        conclusion(replace(table, rows=rows), "ft")
        == "Use dp: +2.0 points of nDCG@10 over the base model (95% interval +1.1 to +3.4)"
    )
