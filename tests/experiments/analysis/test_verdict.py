"""The conclusion: which model to use, and when each method first reaches the baseline's best."""

from dataclasses import replace

import pytest

from grids import N_QUERIES, around
from opera.core.figures import PRIMARY
from opera.experiments.results import Comparison, analyse_runs
from opera.experiments.significance import PairedTest
from opera.experiments.verdict import conclusion, convergence_lines

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
def comparison(folder) -> Comparison:
    for method, mean in (("ft", 0.5), ("dp", 0.6)):
        for seed in (0, 1):
            folder.add(method=method, seed=seed, final=around(mean, seed), base=[0.3] * N_QUERIES)
    return analyse_runs(folder.home)


def test_the_conclusion_says_which_model_to_use(comparison):
    def sentence(gain: PairedTest | None = BETTER, **tests: PairedTest | None) -> str:
        (table,) = with_tests(comparison, tests, gain).tables
        return conclusion(table, "ft")

    two = "Every model is better than the base model: ft by 2.0, dp by 2.0 points of nDCG@10. "
    three = two.replace("dp by 2.0", "dp by 2.0, sp by 2.0")
    none = "No model is measurably better than the base model. "
    assert sentence(dp=BETTER) == f"{two}Use dp: +2.0 points of nDCG@10 over ft (95% interval +1.1 to +3.4)"
    assert sentence(dp=BETTER, sp=replace(BETTER, difference=0.03)).startswith(f"{three}Use sp: +3.0 points of nDCG@10")
    assert sentence(dp=SAME) == f"{two}Use ft: the method makes no difference here"
    assert sentence(dp=SAME, sp=WORSE) == f"{three}Use ft: no other is measurably better"
    assert sentence(SAME, dp=BETTER) == f"{none}Keep the base model"
    assert sentence(WORSE, dp=SAME) == f"{none}Keep the base model"
    assert sentence(None, dp=BETTER) == "No conclusion: there are too few test queries"


def test_keyword_search_comes_first_if_it_beats_every_model(comparison):
    (table,) = with_tests(comparison, {"dp": SAME}, gain=BETTER).tables
    best = max(row.measures[PRIMARY].mean for row in table.rows)
    ahead = replace(table, bm25={PRIMARY: best + 0.1})
    first = (
        f"Keyword search (BM25) ranks better than every model: nDCG@10 {100 * best + 10:.1f} against {100 * best:.1f}."
    )
    assert conclusion(ahead, "ft") == f"{first} {conclusion(table, 'ft')}"
    assert conclusion(replace(table, bm25={PRIMARY: best - 0.1}), "ft") == conclusion(table, "ft")


def test_a_method_that_beats_the_base_model_alone_is_used(comparison):
    (table,) = with_tests(comparison, {"dp": SAME}, gain=BETTER).tables
    rows = (replace(table.rows[0], gain=SAME), table.rows[1])
    sentence = conclusion(replace(table, rows=rows), "ft")
    assert sentence == (
        "Some models are better than the base model: dp by 2.0 points of nDCG@10. "
        "Use dp: +2.0 points of nDCG@10 over the base model (95% interval +1.1 to +3.4)"
    )


def test_automatic_steps_that_differ_are_compared_in_one_table(folder):
    base = [0.3] * N_QUERIES
    for epochs, mean in ((3, 0.8), (10, 0.5)):
        folder.add(method="ft", epochs=epochs, max_steps=None, final=around(mean, epochs), base=base)
    comparison = analyse_runs(folder.home)
    (table,) = comparison.tables
    assert len({row.steps for row in table.rows}) == 2
    assert table.trained == f"{min(row.steps for row in table.rows)} to {table.steps} steps"
    assert table.recommended(comparison.baseline) == "ft:epochs=3"
    assert "Use ft:epochs=3" in conclusion(table, comparison.baseline)


def test_automatic_steps_stay_apart_from_an_equal_number(folder):
    base = [0.3] * N_QUERIES
    folder.add(method="ft", max_steps=None, final=around(0.5), base=base)
    steps = analyse_runs(folder.home).tables[0].steps
    for method, mean in (("ft", 0.4), ("dp", 0.6)):
        folder.add(method=method, max_steps=steps, final=around(mean), base=base)
    means = {table.requested_steps: [row.gain for row in table.rows] for table in analyse_runs(folder.home).tables}
    for gains, expected in ((means[None], [0.2]), (means[steps], [0.1, 0.3])):
        assert [gain and gain.difference for gain in gains] == pytest.approx(expected)


def test_nothing_is_recommended_at_steps_that_the_baseline_lacks(folder):
    for method, steps, mean in (("ft", 100, 0.8), ("dp", 100, 0.7), ("dp", 200, 0.5)):
        folder.add(method=method, max_steps=steps, final=around(mean), base=[0.3] * N_QUERIES)
    (table,) = analyse_runs(folder.home).final_tables()
    assert (table.steps, table.recommended("ft")) == (200, "base")
    assert conclusion(table, "ft").endswith("No conclusion: ft has no run with 200 steps")


def test_the_first_to_reach_the_baselines_best(folder):
    means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
    for method, values in means.items():
        for steps, mean in zip((4, 8, 16), values, strict=True):
            seconds = 0.5 if method == "ft" else 0.75
            folder.add(method=method, max_steps=steps, final=[mean] * N_QUERIES, step_seconds=seconds)
    folder.add(data="data/short", method="ft")
    folder.add(data="data/short", method="dp")
    lines = list(convergence_lines(analyse_runs(folder.home, "ft")))
    heading, *methods = lines
    assert heading == "\none: ft has its best nDCG@10, 50.0, at 8 steps; matched by"
    assert methods == ["  sp: never", "  dp: 4 steps, 0.75 × the time"], "data/short has one number of steps"
    (of_sp, *_) = convergence_lines(analyse_runs(folder.home, "sp"))
    assert of_sp.startswith("\none: sp has its best nDCG@10, 40.0, at 16 steps")
