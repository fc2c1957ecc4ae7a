"""Recorded sampling probabilities: of which steps and queries, and the same over a resume."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opera
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Method, PairScores, Plan
from opera.runs.folder import Run
from opera.runs.sampling import SamplingRecord
from opera.training import sampling_recorder
from opera.training.sampling_recorder import SamplingRecorder

InterruptedAt = Callable[[int], AbstractContextManager[None]]

ERROR = 0.034  # as opera.runs.sampling states
COUNTS = [3, 1, 4, 1, 5, 2, 6, 5, 3, 2]
SHORT: dict[str, Any] = {
    "guard": False,
    "max_steps": 12,
    "per_device_train_batch_size": 16,
    "learning_rate": 0.01,
    "temperature": 0.1,
    "save_steps": 4,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("ft", {}),
    ("rp", {"k": 0.5}),
    ("sp", {"k": 0.5, "query_weighting": "uniform"}),
    ("sp+cbs", {"k": 0.4}),
    ("infobatch", {"rho": 0.5}),
    ("dp", {}),
    ("dp", {"update_interval": 7}),
    ("dp", {"update_interval": "epoch", "threshold": "per_query"}),
    ("sp+dp", {"k": 0.6}),
]


def make(name: str, values: dict[str, Any], steps: int = 40, batch: int = 4) -> Method:
    rng = np.random.default_rng(2)
    docs = np.concatenate([rng.choice(100, count, replace=False) for count in COUNTS])
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(len(COUNTS)), COUNTS), docs)
    similarity, loss = rng.uniform(-1, 1, pairs.n_pairs), rng.exponential(2.0, pairs.n_pairs)
    method = METHODS[name]
    parsed = method.settings_class.parse(values)
    scores = PairScores(pairs, similarity, loss, 1 / rng.integers(1, 5, pairs.n_pairs))
    return method(pairs, Plan(3, steps, batch), parsed, scores if method.needs_scores(parsed) else None)


def near(codes: NDArray[np.float64], truth: NDArray[np.float64]) -> bool:
    return bool((np.abs(codes - truth) <= ERROR * truth).all())


def arrays(record: SamplingRecord | None) -> dict[str, NDArray[Any]]:
    assert record is not None
    return vars(record)


def assert_same(one: SamplingRecord | None, other: SamplingRecord | None) -> None:
    for name, values in arrays(one).items():
        theirs = arrays(other)[name]
        assert values.dtype == theirs.dtype, name
        assert np.array_equal(values, theirs), name


@pytest.mark.parametrize(("name", "values"), VARIANTS)
def test_records_are_the_methods_probabilities_at_evenly_spaced_steps(name: str, values: dict[str, Any]) -> None:
    method, plain = make(name, values), make(name, values)
    recorder, rng = SamplingRecorder(method, 6), np.random.default_rng(0)
    truth = {}
    for step in range(40):
        drawn = method.draw(step)
        recorder.record(step)
        probabilities = method.probabilities(step)
        truth[step] = probabilities.query * method.pairs.n_queries, probabilities.document * np.repeat(COUNTS, COUNTS)
        assert np.array_equal(plain.draw(step).pair_ids, drawn.pair_ids), "recording must not change what is drawn"
        seen = rng.uniform(-1, 1, len(drawn.pair_ids)), rng.exponential(2.0, len(drawn.pair_ids))
        for one in (method, plain):
            one.observe(drawn.pair_ids, *seen)
    record = recorder.finished()
    assert record.steps.tolist() == [0, 8, 16, 23, 31, 39]
    assert record.query_ids.tolist() == list(range(len(COUNTS)))
    assert record.pair_ids.tolist() == list(range(sum(COUNTS)))
    for row, step in enumerate(record.steps.tolist()):
        query, document = truth[step]
        assert near(record.query()[row], query)
        assert near(record.document()[row], document)
    if name == "ft":
        assert (record.query() == 1).all()
        assert (record.document() == 1).all()
    if name in ("sp", "sp+cbs", "rp", "sp+dp"):
        assert (record.document()[:, ~method.kept] == 0).all()


@pytest.mark.parametrize(
    ("length", "snapshots", "steps"),
    [(1, 50, [0]), (5, 1, [0]), (5, 2, [0, 4]), (5, 50, [0, 4]), (17, 50, [0, 5, 11, 16]), (17, 3, [0, 8, 16])],
)
def test_the_first_and_the_last_step_are_recorded_and_none_too_close(
    length: int, snapshots: int, steps: list[int]
) -> None:
    method = make("ft", {}, steps=length)
    recorder = SamplingRecorder(method, snapshots)
    for step in range(length):
        method.draw(step)
        recorder.record(step)
    assert recorder.finished().steps.tolist() == steps


def test_of_large_sets_some_queries_are_recorded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_recorder, "MAX_PAIRS", 12)
    method = make("dp", {})
    recorder = SamplingRecorder(method, 2)
    method.draw(0)
    recorder.record(0)
    record, offsets = recorder.finished(), method.pairs.query_offsets
    assert 0 < len(record.query_ids) < len(COUNTS)
    assert (np.diff(record.query_ids) > 0).all()
    assert record.pair_ids.tolist() == [p for q in record.query_ids for p in range(offsets[q], offsets[q + 1])]
    assert len(record.pair_ids) <= 12
    probabilities = method.probabilities(0)
    assert near(record.query()[0], probabilities.query[record.query_ids] * len(COUNTS))
    assert near(
        record.document()[0], probabilities.document[record.pair_ids] * np.repeat(COUNTS, COUNTS)[record.pair_ids]
    )
    assert SamplingRecorder(make("ft", {}), 2).finished().query_ids.tolist() == record.query_ids.tolist()
    monkeypatch.setattr(sampling_recorder, "MAX_PAIRS", 0)
    assert len(SamplingRecorder(method, 2).finished().query_ids) == 1


@pytest.mark.parametrize(("name", "recorded"), [("dp", 3), ("ft", 3), ("dp", 0)])
def test_a_record_survives_its_file(name: str, recorded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_recorder, "MIN_STEPS_BETWEEN", 1)
    method = make(name, {})
    recorder = SamplingRecorder(method, 40)
    for step in range(recorded):
        method.draw(step)
        recorder.record(step)
    record = recorder.finished()
    record.write(tmp_path / "sampling.npz")
    assert_same(SamplingRecord.read(tmp_path / "sampling.npz"), record)
    again = SamplingRecorder(method, 40)
    again.resume_from(record)
    assert_same(again.finished(), record)
    assert record.until(2).steps.tolist() == [0, 1][:recorded]
    assert len(record.until(2).query_codes) == min(2, recorded)


@pytest.mark.parametrize("method", ["sp+dp", "infobatch"])
def test_a_resumed_run_has_the_record_of_a_whole_one(
    method: str,
    beir: Path,
    static_model: Path,
    tmp_path: Path,
    interrupted_at: InterruptedAt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling_recorder, "MIN_STEPS_BETWEEN", 1)
    settings = {**SHORT, "method": method}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)
    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    cut = Run.open(tmp_path / "cut").sampling()
    assert cut is not None
    assert cut.steps.max() < 8, "written with the checkpoint of step 8"
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 8
    assert_same(resumed.sampling(), whole.sampling())
    assert len(arrays(whole.sampling())["steps"]) == 12
    assert arrays(whole.sampling())["steps"][-1] == 11
    assert Run(whole.path).pairs().num_rows == len(arrays(whole.sampling())["pair_ids"])
