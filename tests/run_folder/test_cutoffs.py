"""Cut-offs: chosen so that the promised precision holds on new queries, kept in a run, and used by a search."""

import json
import shutil

import numpy as np
import pytest

import opera
from opera.core.figures import fraction_interval
from opera.identity import Origin
from opera.run_folder.cutoffs import PRECISIONS, CutoffRecord, fit_cutoffs


def sample(rng: np.random.Generator, count: int, informative: bool) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores and whether they are relevant: with a probability that rises with the score, or 0.6 for all."""
    scores = rng.uniform(0, 1, count).astype(np.float32)
    return scores, rng.uniform(0, 1, count) < (scores if informative else 0.6)


@pytest.mark.parametrize("digits", [2, 7])
def test_the_curve_counts_the_answers_of_candidates_that_only_scores_decide(digits):
    scores, is_relevant = sample(np.random.default_rng(0), 300, informative=True)
    scores = np.round(scores, digits)
    curve = fit_cutoffs(scores, is_relevant).curve
    for point in curve:
        answers = scores >= np.float32(point.score)
        assert (point.answered, point.relevant) == (answers.sum(), is_relevant[answers].sum())
    assert [point.score for point in curve] == [point.score for point in fit_cutoffs(scores, ~is_relevant).curve]
    answered = [point.answered for point in curve]
    assert answered == sorted(set(answered), reverse=True)
    assert answered[0] == 300


def test_the_promised_precision_holds_on_new_queries():
    """Above a score s, (1 + s) / 2 of the answers are relevant; for scores that say nothing, 0.6 are."""
    rng = np.random.default_rng(0)
    chosen = [fit_cutoffs(*sample(rng, 500, informative=True)).cutoff(0.8) for _ in range(100)]
    precisions = [(1 + cutoff.score) / 2 for cutoff in chosen if cutoff is not None]
    assert len(precisions) > 60
    assert np.mean(np.array(precisions) >= 0.8) > 0.95
    assert np.mean(precisions) < 0.9, "it is not far higher either"
    no_use = [fit_cutoffs(*sample(rng, 500, informative=False)).cutoff(0.7) for _ in range(100)]
    assert sum(cutoff is not None for cutoff in no_use) < 10


def test_the_interval_holds_although_the_same_queries_choose_the_cutoff():
    """Above a score s, 0.7 + s / 5 of the answers are relevant, so 80% is reached from s = 0.5."""
    rng, chosen = np.random.default_rng(0), []
    for _ in range(300):
        scores = rng.uniform(0, 1, 1000).astype(np.float32)
        cutoff = fit_cutoffs(scores, rng.uniform(0, 1, 1000) < 0.5 + 0.4 * scores).cutoff(0.8)
        if cutoff is not None:
            assert cutoff.low == 0.8 <= cutoff.precision <= cutoff.high
            chosen.append((0.7 + cutoff.score / 5, cutoff.high))
    precision, high = np.array(chosen).T
    assert len(chosen) > 60
    # At most 2.5% of all 300 miss the target, 8 of about 120; the old rule missed it in a third of its cut-offs.
    assert np.sum(precision < 0.8) <= 8
    assert np.mean((precision >= 0.8) & (precision <= high)) >= 0.93


@pytest.mark.parametrize(("target", "fewest"), [(0.7, 15), (0.8, 24), (0.9, 51)])
def test_so_many_relevant_answers_reach_a_precision(target, fewest):
    """One of five starts has a fifth of 2.5%: all of n answers are relevant with a probability of target ** n."""
    assert target**fewest <= 0.005 < target ** (fewest - 1)
    for count in (fewest - 1, fewest):
        scores = np.linspace(0, 1, count, dtype=np.float32)
        cutoff = fit_cutoffs(scores, np.ones(count, dtype=bool)).cutoff(target)
        assert (cutoff is None) == (count < fewest)


def test_an_interval_of_a_fraction_is_exact():
    assert fraction_interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert fraction_interval(10, 10) == pytest.approx((0.025 ** (1 / 10), 1))
    assert fraction_interval(0, 10) == pytest.approx((0, 1 - 0.025 ** (1 / 10)))


def test_a_run_records_what_its_best_documents_are(trained, tmp_path):
    record = trained.record.cutoffs
    first = record.curve[0]
    assert record.queries == first.answered == trained.per_query().num_rows
    assert first.relevant == trained.per_query()["final Success@1"].to_numpy().sum()
    assert json.loads((trained.path / "run.json").read_text())["cutoffs"] == record.model_dump()
    assert "When not to answer" in (trained.model_path / "README.md").read_text()
    assert "<summary>When not to answer" in opera.report(trained.path, tmp_path / "report.html").read_text()


def test_a_search_takes_the_cutoff_of_a_precision(trained, tmp_path):
    record = fit_cutoffs(np.linspace(0, 1, 200, dtype=np.float32), np.arange(200) >= 100)
    assert [cutoff.target for cutoff in record.cutoffs] == list(PRECISIONS)
    copy = shutil.copytree(trained.model_path, tmp_path / "copy")
    origin = Origin.read(copy)
    origin.model_copy(update={"cutoffs": record}).write(copy)
    cutoff = record.cutoff(0.8)
    for options in ({"min_precision": 0.8}, {"cutoff": cutoff.score}):
        documents = opera.search(trained.path, "t1w5 t1w6", model=copy, top=20, **options)
        assert [row.good_enough for row in documents] == [row.score >= cutoff.score for row in documents]
    nothing = CutoffRecord(queries=200, curve=record.curve[:1], cutoffs=[])
    origin.model_copy(update={"cutoffs": nothing}).write(copy)
    with pytest.raises(opera.SettingError):
        opera.search(trained.path, "t1w5 t1w6", model=copy, min_precision=0.8)
