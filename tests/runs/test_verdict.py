"""The guard's choice in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from grids import guard_record
from opera.runs.record import GuardedMeasure, GuardRecord, SecondTraining
from opera.runs.verdict import dev_sentence, gained, share_sentence, verdict_sentence, warnings_of


def measured(low: float, high: float, **changes: Any) -> GuardedMeasure:
    middle = (low + high) / 2
    values = {"queries": 120, "before": 0.3, "fine_tuned": 0.3, "after": 0.3 + middle, "difference": middle}
    return GuardedMeasure(**{**values, "low": low, "high": high, **changes})


def record(**changes: Any) -> GuardRecord:
    dev, test = measured(0.02, 0.061, difference=0.041), measured(0.001, 0.075)
    return guard_record(**{"share": 0.75, "dev": dev, "test": test, "refit": True, **changes})


TEST = "nDCG@10 30.0 -> 33.8 (+3.8, 95% interval +0.1 to +7.5) on 120 test queries"
FEW = "Too few dev queries to tell (19 of 20): "


@pytest.mark.parametrize(
    ("changes", "sentence", "gain"),
    [
        ({}, f"Better: {TEST}", True),
        ({"test": None}, "Better on dev: nDCG@10 30.0 -> 34.0 (+4.1, 95% interval +2.0 to +6.1) on 120 dev", False),
        ({"test": measured(-0.01, 0.05)}, "Better on dev; test cannot tell: nDCG", False),
        ({"test": measured(0.37, 0.37, queries=2)}, "Better on dev; test cannot tell: nDCG", False),
        ({"test": measured(-0.05, -0.01)}, "Better on dev, worse on test: nDCG", False),
        ({"verdict": "same"}, "Not distinguishable on dev: nDCG", False),
        ({"verdict": "same", "dev_queries": 19}, f"{FEW}nDCG", False),
        ({"verdict": "kept", "share": 0, "dev_queries": 19}, f"{FEW}the base model stays", False),
        ({"verdict": "kept", "share": 0}, "No sure gain on dev: the base model stays", False),
        (
            dict.fromkeys(("dev", "test"), measured(0, 0, fine_tuned=0.25)) | {"verdict": "kept", "share": 0},
            "Worse: the base model stays; fine-tuning changes nDCG@10 30.0 -> 25.0 (−5.0) on 120 test queries",
            False,
        ),
    ],
)
def test_no_more_is_said_than_dev_and_test_say(changes: dict[str, Any], sentence: str, gain: bool) -> None:
    assert verdict_sentence(record(**changes)).startswith(sentence)
    assert len(verdict_sentence(record(**changes)).split()) <= 25
    assert gained(record(**changes)) is gain
    assert not gained(None)


def test_of_few_queries_no_interval_is_printed() -> None:
    few = record(verdict="same", dev_queries=19, dev=measured(-2.5, 2.2, queries=19), test=measured(-1, 1, queries=2))
    assert verdict_sentence(few) == f"{FEW}nDCG@10 30.0 -> 30.0 (0.0) on 2 test queries"


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "the base weights (λ = 0), chosen on 120 dev queries"),
        (1, "the fine-tuned weights (λ = 1), chosen"),
        (0.25, "25% fine-tuned, 75% base weights (λ = 0.25)"),
    ],
)
def test_the_share(share: float, words: str) -> None:
    assert words in share_sentence(record(share=share))


def test_the_dev_split_and_what_was_read_of_test() -> None:
    assert dev_sentence(record()) == (
        "λ was chosen on 120 dev queries (split off train) for --future like-test, assumed. Train contains 50% "
        "of dev's documents and 45% of test's."
    )
    blind = record(dev_given=True, dev_documents=10_000, future="same-documents", future_given=True, test_seen=None)
    assert dev_sentence(blind) == (
        "λ was chosen on 120 dev queries (given with the data; ranked among 10,000 documents) for --future "
        "same-documents. Train contains 50% of dev's documents."
    )


def test_which_of_two_trainings_is_handed_over() -> None:
    for kept, training in ((True, "a second training on train and dev ("), (False, "the first training, because")):
        second = SecondTraining(trial=0.5, second=0.7, error=0.01, kept=kept)
        assert f"The final model comes from {training}" in dev_sentence(record(second=second))


def test_two_kinds_of_queries() -> None:
    part = {"queries": 60, "before": 0.3, "fine_tuned": 0.4, "after": 0.35}
    both = record(future="both", test_seen=None, dev_parts={"same documents": part, "new documents": part})
    expected = "+5.0 points (60 about same documents), +5.0 points (60 about new documents)."
    assert expected in dev_sentence(both)
    assert warnings_of(both) == []
    (one,) = warnings_of(record(future="both", test_seen=None, dev_parts={"new documents": part}))
    assert "dev has queries only about new documents" in one


def test_reasons_for_doubt() -> None:
    assert warnings_of(record()) == []
    doubts = warnings_of(record(dev_seen=0.9, test_seen=0.1, dev_queries=33, test=measured(-0.08, -0.01)))
    assert [words in doubt for words, doubt in zip(("newer than dev's", "33 dev", "fell"), doubts, strict=True)] == [
        True, True, True,
    ]  # fmt: skip
    (newer,) = warnings_of(record(future="new-documents", test_seen=None))
    assert "future documents are newer than dev's (train has 0% of them, and 50% of dev's)" in newer
