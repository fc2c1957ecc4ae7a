"""The guard's choice in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from opera.runs.guard_words import dev_sentence, gained, share_sentence, verdict_sentence, warnings_of
from opera.runs.record import GuardedMeasure, GuardRecord, SecondTraining, ShareMean


def record(**changes: Any) -> GuardRecord:
    dev = GuardedMeasure(queries=120, before=0.3, fine_tuned=0.33, after=0.341, difference=0.041, low=0.02, high=0.061)
    test = GuardedMeasure(
        queries=120, before=0.3, fine_tuned=0.32, after=0.338, difference=0.038, low=0.001, high=0.075
    )
    values = {
        "share": 0.75, "verdict": "better", "measure": "nDCG@10", "future": "like-test", "future_given": False,
        "dev_given": False, "dev_queries": 120, "dev_seen": 0.5, "test_seen": 0.45,
        "curve": [ShareMean(share=0, mean=0.3)], "dev": dev, "test": test, "refit": True,
    }  # fmt: skip
    return GuardRecord(**{**values, **changes})


DEV = "nDCG@10 +4.1 points on dev (95% interval +2.0 to +6.1)"


def measured(low: float, high: float) -> GuardedMeasure:
    middle = (low + high) / 2
    return GuardedMeasure(
        queries=120, before=0.3, fine_tuned=0.3, after=0.3 + middle, difference=middle, low=low, high=high
    )


def test_better() -> None:
    assert verdict_sentence(record()) == f"better: {DEV}, +3.8 on test (+0.1 to +7.5)"
    assert verdict_sentence(record(test=None)) == f"better on dev: {DEV}"


def test_no_more_is_said_than_test_says() -> None:
    assert verdict_sentence(record(test=measured(-0.01, 0.05))).startswith("better on dev; test cannot tell: nDCG")
    assert verdict_sentence(record(test=measured(-0.05, -0.01))).startswith("better on dev, worse on test: nDCG")
    two = measured(0.37, 0.37).model_copy(update={"queries": 2})
    assert verdict_sentence(record(test=two)).startswith("better on dev; test cannot tell")
    assert not gained(record(test=two))


def test_no_more_is_said_than_dev_says() -> None:
    assert verdict_sentence(record(verdict="same")).startswith("not distinguishable on dev: nDCG")
    few = verdict_sentence(record(verdict="same", dev_queries=19))
    assert few.startswith("dev cannot tell (19 of 20 queries that it takes): nDCG")
    kept = verdict_sentence(record(verdict="kept", share=0, dev_queries=19))
    assert kept.startswith("dev cannot tell (19 of 20 queries that it takes): the untrained model is kept")
    assert verdict_sentence(record(verdict="kept", share=0)).startswith(
        "no sure gain on dev: the untrained model is kept"
    )


def test_kept() -> None:
    kept = GuardedMeasure(queries=120, before=0.3, fine_tuned=0.25, after=0.3, difference=0, low=0, high=0)
    assert verdict_sentence(record(verdict="kept", share=0, dev=kept, test=kept)) == (
        "worse: the untrained model is kept; fine-tuning changes nDCG@10 by −5.0 points on dev, −5.0 on test"
    )


def test_a_gain_is_one_on_dev_and_on_test() -> None:
    assert gained(record())
    assert not gained(record(test=None))
    assert not gained(record(test=measured(-0.01, 0.05)))
    assert not gained(record(test=measured(-0.05, -0.01)))
    assert not gained(record(verdict="same"))
    assert not gained(None)


@pytest.mark.parametrize(
    ("share", "words"), [(0, "the untrained ones"), (1, "the fine-tuned ones"), (0.375, "37.5% fine-tuned and 62.5%")]
)
def test_the_share(share: float, words: str) -> None:
    assert words in share_sentence(record(share=share))


def test_the_dev_split_and_what_was_read_of_test() -> None:
    assert dev_sentence(record()) == (
        "Chosen on 120 dev queries (drawn from train), for queries about documents as new as those of test (--future "
        "like-test, assumed). Train names 50% of dev's documents and 45% of test's; that share is all that is read of "
        "test."
    )
    blind = record(dev_given=True, dev_documents=10_000, future="same-documents", future_given=True, test_seen=None)
    assert dev_sentence(blind) == (
        "Chosen on 120 dev queries (given with the data; ranked among 10,000 documents), for queries about documents "
        "that training names (--future same-documents). Train names 50% of dev's documents; nothing is read of test."
    )


def test_which_of_two_trainings_is_handed_over() -> None:
    second = SecondTraining(trial=0.5, second=0.7, error=0.01, kept=True)
    assert "Then trained again with them in train (on dev, which it has seen, 0.700 beside 0.500)." in dev_sentence(
        record(second=second)
    )
    behind = record(second=SecondTraining(trial=0.5, second=0.3, error=0.01, kept=False), refit=False)
    assert "fell behind (on dev, which it has seen, 0.300 beside 0.500), so the first" in dev_sentence(behind)


def test_two_kinds_of_queries() -> None:
    part = {"queries": 60, "before": 0.3, "fine_tuned": 0.4, "after": 0.35}
    both = record(future="both", test_seen=None, dev_parts={"same documents": part, "new documents": part})
    expected = "Of the dev queries: +5.0 points on 60 about same documents, +5.0 points on 60 about new documents."
    assert expected in dev_sentence(both)
    assert warnings_of(both) == []
    (one,) = warnings_of(record(future="both", test_seen=None, dev_parts={"new documents": part}))
    assert "dev holds queries about new documents alone" in one


def test_reasons_for_doubt() -> None:
    assert warnings_of(record()) == []
    doubts = warnings_of(record(dev_seen=0.9, test_seen=0.1, dev_queries=33, test=measured(-0.08, -0.01)))
    assert [words in doubt for words, doubt in zip(("newer than dev's", "33 dev", "fell"), doubts, strict=True)] == [
        True, True, True,
    ]  # fmt: skip
    (newer,) = warnings_of(record(future="new-documents", test_seen=None))
    assert "tomorrow's documents are newer than dev's (train names 0% of them, and 50% of dev's)" in newer
