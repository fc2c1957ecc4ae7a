"""The verdict: short bullets that keep the uncertainty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grids import N_QUERIES, RunsFolder, around, guard_record
from opera.experiments.analysis import PRIMARY, Comparison, PairedTest, analyse_runs
from opera.experiments.analysis.verdict import verdict

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


def bullets(comparison: Comparison) -> list[str]:
    (only,) = verdict(comparison)
    return only.bullets


@pytest.fixture
def comparison(folder: RunsFolder) -> Comparison:
    for method, mean in (("ft", 0.5), ("dp", 0.6)):
        for seed in (0, 1):
            folder.add(method=method, seed=seed, final=around(mean, seed), base=[0.3] * N_QUERIES)
    return analyse_runs(folder.home)


def test_three_bullets_with_the_interval_and_the_corrected_p(comparison: Comparison) -> None:
    best, against_baseline, against_untrained = bullets(comparison)
    assert best == "Best method by mean nDCG@10: dp, 0.600 ± 0.000"
    assert against_baseline.startswith("Against ft: dp is significantly better: +10.0 points of nDCG@10 (95% interval ")
    assert "; p " in against_baseline
    assert against_untrained.startswith("Against the base model: dp is significantly better: +30.0 points")
    assert ", both corrected for 2 methods); also significantly better: ft" in against_untrained


def test_the_conclusion_says_which_model_to_use(comparison: Comparison) -> None:
    def conclusion(gain: PairedTest | None = BETTER, **tests: PairedTest | None) -> str:
        (only,) = verdict(with_tests(comparison, tests, gain))
        return only.conclusion

    assert conclusion(dp=BETTER) == "Use dp: +2.0 points of nDCG@10 over ft (95% interval +1.1 to +3.4)"
    assert conclusion(dp=BETTER, sp=replace(BETTER, difference=0.03)).startswith("Use sp: +3.0 points of nDCG@10")
    assert conclusion(dp=SAME) == "Keep ft: no measurable difference"
    assert conclusion(dp=SAME, sp=WORSE) == "Keep ft: no other method is measurably better"
    assert conclusion(SAME, dp=BETTER) == "Keep the base model: no method is measurably better"
    assert conclusion(WORSE, dp=SAME) == "Keep the base model: no method is measurably better"
    assert conclusion(None, dp=BETTER) == "No conclusion: there are too few test queries"


def test_a_method_that_beats_the_base_model_alone_is_used(comparison: Comparison) -> None:
    (table,) = with_tests(comparison, {"dp": SAME}, gain=BETTER).tables
    rows = (replace(table.rows[0], gain=SAME), table.rows[1])
    (only,) = verdict(replace(comparison, tables=(replace(table, rows=rows),)))
    assert only.conclusion == "Use dp: +2.0 points of nDCG@10 over the base model (95% interval +1.1 to +3.4)"


def test_against_the_baseline(comparison: Comparison) -> None:
    def against(**tests: PairedTest | None) -> str:
        return bullets(with_tests(comparison, tests))[1].removeprefix("Against ft: ")

    difference = "+2.0 points of nDCG@10 (95% interval +1.1 to +3.4"
    assert against(dp=BETTER) == f"dp is significantly better: {difference}; p = 0.003)"
    assert against(dp=SAME).startswith("dp is not significantly different: ")
    assert against(dp=WORSE).startswith("dp is significantly worse: −10.0 points")
    both = f"{difference}; p = 0.003, both corrected for 2 methods)"
    assert against(dp=BETTER, sp=WORSE) == f"dp is significantly better: {both}; significantly worse: sp"
    assert against(dp=SAME, sp=WORSE).startswith("no method is significantly better; the best of 2, dp, has ")


def test_a_single_method_is_tested_against_the_untrained_model(folder: RunsFolder) -> None:
    folder.add(method="dp", final=np.linspace(0.2, 0.4, 9), base=np.linspace(0.21, 0.37, 9)[::-1])
    change, against_base = bullets(analyse_runs(folder.home))
    assert change == "dp raises nDCG@10 from 0.290 to 0.300"
    assert against_base.startswith("Against the base model: dp is not significantly different: +1.0 points")


def test_the_guard_of_one_run(folder: RunsFolder) -> None:
    chosen = guard_record(dev_queries=33)
    folder.add(base=[0.3] * N_QUERIES, fine_tuned=[0.31] * N_QUERIES, final=[0.33] * N_QUERIES, chosen=chosen)
    *_, guard, warning = bullets(analyse_runs(folder.home))
    assert guard.startswith("Guard: better: nDCG@10 30.0 -> 33.0 (+3.0, 95% interval +1.0 to +5.0) on 120 test queries")
    assert "against the fine-tuned model: ft is significantly better: +2.0 points of nDCG@10" in guard
    assert warning.startswith("Warning: 33 dev queries are few")
