"""The summary of a run: each fact once, for every reader."""

import dataclasses
import html
import re
from typing import Any

import pytest

from grids import guard_record
from opera.run_folder.record import GuardedMeasure, GuardRecord, NoisyLabelsRecord
from opera.run_folder.summary import (
    NEXT_STEPS,
    Change,
    RunSummary,
    next_step_sentence,
    verdict_of,
    verdict_sentence,
    warnings_of,
)


def test_all_readers_show_the_facts_of_the_summary(trained):
    summary, guard = trained.summary, trained.record.guard
    assert summary.verdict == verdict_of(guard)
    change = summary.changes["nDCG@10"]
    measured = [100 * trained.measures[model]["nDCG@10"] for model in ("base", "final")]
    assert 100 * change.difference == pytest.approx(measured[1] - measured[0])
    assert (change.low, change.high) == (guard.test.low, guard.test.high)
    card = (trained.model_path / "README.md").read_text()
    page = html.unescape(trained._repr_html_() or "")
    for line in trained.headlines:
        assert line in card
        assert line in page
    assert f"{measured[1]:.1f} | {change.in_points()} |" in card
    assert f"<td>{measured[1]:.1f}</td>" in page
    assert repr(trained).endswith(f"steps: {trained.headlines[0]})")
    values = summary.as_dict()
    assert (values["verdict"], values["measures"]) == (summary.verdict, trained.measures)
    assert values["changes"]["nDCG@10"] == vars(change)
    assert values["guard"] == guard.model_dump()


def summary_of(trained, **changes: Any) -> RunSummary:
    return dataclasses.replace(trained.summary, bm25=None, hybrid=None, **changes)


@pytest.mark.parametrize(
    ("verdict", "low", "sentence"),
    [
        ("better", 0.0, "Next: use the final model"),
        ("better", 0.2, "Next: review the labels that look wrong"),
        ("base model kept", 0.0, "Next: keep the base model; more labels, or another base model"),
        ("worse on test", 0.0, "Next: keep the base model"),
        ("too few dev queries to tell (3 of 20)", 0.0, "Next: collect more labels; a verdict needs 20"),
    ],
)
def test_a_verdict_ends_with_what_to_do(trained, verdict, low, sentence):
    labels = NoisyLabelsRecord(noise_rate=low, low=low, high=low, suspicious=1, visited=9999, unvisited=0)
    record = trained.record.model_copy(update={"noisy_labels": labels})
    assert next_step_sentence(summary_of(trained, record=record, verdict=verdict)).startswith(sentence)


def test_a_verdict_advises_keywords_if_they_are_as_good(trained):
    for difference, sentence in ((0.0, "Next: search with keywords"), (-0.01, "Next: use the final model")):
        record = trained.record.model_copy(update={"noisy_labels": None})
        tie = Change(difference, -0.1, 0.1)
        summary = dataclasses.replace(trained.summary, record=record, verdict="better", bm25=tie, hybrid=None)
        assert next_step_sentence(summary).startswith(sentence)


def test_every_verdict_has_a_next_step():
    verdicts = [verdict_of(record(**changes)) for changes, *_ in VERDICTS]
    assert {verdict for verdict in verdicts if not verdict.startswith("too few")} == NEXT_STEPS.keys()


def test_the_next_commands_name_the_run(trained):
    commands = trained.summary.next_commands()
    assert list(commands) == ["review", "show", "search", "report"]
    assert all(re.match(f"opera {name} {trained.path}", command) for name, command in commands.items())
    assert trained.summary.next_commands(trained.path.parent)["report"] == f"opera report {trained.path.parent}"


def test_a_run_on_vectors_has_no_search(trained):
    record = trained.record.model_copy(update={"settings": {**trained.settings, "query_vectors": "q.npy"}})
    summary = RunSummary.of(trained.path, record, trained.measures, trained.per_query())
    assert list(summary.next_commands()) == ["review", "show", "report"]


def measured(low: float, high: float, **changes: Any) -> GuardedMeasure:
    middle = (low + high) / 2
    values = {"queries": 120, "base": 0.3, "fine_tuned": 0.3, "final": 0.3 + middle, "difference": middle}
    return GuardedMeasure(**{**values, "low": low, "high": high, **changes})


def record(**changes: Any) -> GuardRecord:
    dev, test = measured(0.02, 0.061, difference=0.041), measured(0.001, 0.075)
    return guard_record(**{"mixing_weight": 0.75, "dev": dev, "test": test, "refit": True, **changes})


TEST = "nDCG@10 30.0 -> 33.8 (+3.8, 95% interval +0.1 to +7.5) on 120 test queries"
FEW = "Too few dev queries to tell (19 of 20): "


VERDICTS: list[tuple[dict[str, Any], str, bool]] = [
    ({}, f"Better: {TEST}", True),
    ({"test": None}, "Better on dev: nDCG@10 30.0 -> 34.0 (+4.1, 95% interval +2.0 to +6.1) on 120 dev", False),
    ({"test": measured(-0.01, 0.05)}, "Better on dev, not confirmed on test: nDCG", False),
    ({"test": measured(-0.05, -0.01)}, "Better on dev, worse on test: nDCG", False),
    ({"dev_verdict": "same"}, "Better on test, not confirmed on dev: nDCG", False),
    ({"dev_verdict": "same", "test": None}, "No significant gain: nDCG", False),
    ({"dev_verdict": "same", "test": measured(-0.01, 0.05)}, "No significant gain: nDCG", False),
    ({"dev_verdict": "same", "test": measured(-0.05, -0.01)}, "Worse on test: nDCG", False),
    ({"dev_verdict": "same", "dev_queries": 19}, f"{FEW}nDCG", False),
    ({"dev_verdict": "kept", "mixing_weight": 0}, "Base model kept: fine-tuning changes nDCG", False),
    (
        {
            "dev_verdict": "kept",
            "mixing_weight": 0,
            **dict.fromkeys(("dev", "test"), measured(0, 0, fine_tuned=0.25)),
        },
        "Base model kept: fine-tuning changes nDCG@10 30.0 -> 25.0 (−5.0) on 120 dev queries",
        False,
    ),
]


@pytest.mark.parametrize(("changes", "sentence", "gain"), VERDICTS)
def test_no_more_is_said_than_dev_and_test_say(changes, sentence, gain):
    assert verdict_sentence(record(**changes)).startswith(sentence)
    assert len(verdict_sentence(record(**changes)).split()) <= 25
    assert (verdict_of(record(**changes)) == "better") is gain


def test_of_few_queries_no_interval_is_printed():
    dev, test = measured(-2.5, 2.2, queries=19), measured(-1, 1, queries=2)
    few = record(dev_verdict="same", dev_queries=19, dev=dev, test=test)
    assert verdict_sentence(few) == f"{FEW}nDCG@10 30.0 -> 30.0 (0.0) on 2 test queries"


def test_seen_queries_few_queries_a_loss_and_unmeasured_documents_are_reasons_for_doubt():
    assert list(warnings_of(record())) == []
    assert len(list(warnings_of(record(dev_seen=0.9, test_seen=0.1, dev_queries=33, test=measured(-0.08, -0.01))))) == 3
    assert len(list(warnings_of(record(expected_documents="new", test_seen=None)))) == 1
    part = {"queries": 60, "base": 0.3, "fine_tuned": 0.4, "final": 0.35}
    both = {
        "expected_documents": "both",
        "test_seen": None,
        "dev_parts": {"same documents": part, "new documents": part},
    }
    assert list(warnings_of(record(**both))) == []
    assert len(list(warnings_of(record(**both | {"dev_parts": {"new documents": part}})))) == 1
