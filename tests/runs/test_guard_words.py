"""The guard's choice in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from opera.runs.guard_words import dev_sentence, gained, share_sentence, verdict_sentence, warnings_of
from opera.runs.record import GuardedMeasure, GuardRecord, ShareMean


def record(**changes: Any) -> GuardRecord:
    dev = GuardedMeasure(before=0.3, fine_tuned=0.33, after=0.341, difference=0.041, low=0.02, high=0.061)
    test = GuardedMeasure(before=0.3, fine_tuned=0.32, after=0.338, difference=0.038, low=-0.001, high=0.077)
    values = {
        "share": 0.75, "verdict": "better", "measure": "nDCG@10", "dev_split": "like-test", "dev_queries": 120,
        "dev_seen": 0.5, "test_seen": 0.45, "curve": [ShareMean(share=0, mean=0.3)], "dev": dev, "test": test,
        "refit": True,
    }  # fmt: skip
    return GuardRecord(**{**values, **changes})


def test_better() -> None:
    expected = "better: nDCG@10 +4.1 points on dev (95% interval +2.0 to +6.1), +3.8 on test (−0.1 to +7.7)"
    assert verdict_sentence(record()) == expected
    assert verdict_sentence(record(test=None)) == expected.split(", +3.8")[0]
    assert verdict_sentence(record(verdict="same")) == expected.replace("better", "not distinguishable")


def test_kept() -> None:
    kept = GuardedMeasure(before=0.3, fine_tuned=0.25, after=0.3, difference=0, low=0, high=0)
    assert verdict_sentence(record(verdict="kept", share=0, dev=kept, test=kept)) == (
        "worse: the untrained model is kept; fine-tuning changes nDCG@10 by −5.0 points on dev, −5.0 on test"
    )


def test_a_gain_on_dev_that_test_denies_is_none() -> None:
    fallen = GuardedMeasure(before=0.3, fine_tuned=0.2, after=0.2, difference=-0.1, low=-0.2, high=-0.01)
    assert gained(record())
    assert gained(record(test=None))
    assert not gained(record(test=fallen))
    assert not gained(record(verdict="same"))
    assert not gained(None)


@pytest.mark.parametrize(
    ("share", "words"), [(0, "the untrained ones"), (1, "the fine-tuned ones"), (0.375, "37.5% fine-tuned and 62.5%")]
)
def test_the_share(share: float, words: str) -> None:
    assert words in share_sentence(record(share=share))


def test_the_dev_split() -> None:
    assert dev_sentence(record()) == (
        "Chosen on 120 dev queries (drawn from train, like-test); then trained again with them in train. Train names "
        "50% of dev's documents and 45% of test's."
    )
    given = record(dev_split="given", refit=False, dev_documents=10_000)
    assert "Chosen on 120 dev queries (given with the data; ranked among 10,000 documents). Train" in dev_sentence(
        given
    )


def test_reasons_for_doubt() -> None:
    assert warnings_of(record()) == []
    worse = GuardedMeasure(before=0.3, fine_tuned=0.2, after=0.25, difference=-0.05, low=-0.08, high=-0.01)
    doubts = warnings_of(record(dev_seen=0.9, test_seen=0.1, dev_queries=33, test=worse))
    assert [words in doubt for words, doubt in zip(("newer than dev's", "33 dev", "fell"), doubts, strict=True)] == [
        True, True, True,
    ]  # fmt: skip
