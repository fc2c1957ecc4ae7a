"""Checkpoints: runs that are killed, cut or damaged end like those that were not."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TrainerCallback

import opera
from attacks import Bomb, plant_bomb
from killable import Killable, changes
from opera.core.errors import InputError, ModelError, RunFolderError, TrainingError
from opera.engine.checkpoint import flatten, mark_complete, nest
from opera.runs.folder import Run
from small_runs import SMALL, InterruptedAt, assert_same_run

TWELVE: dict[str, Any] = {**SMALL, "max_steps": 12}


class StopAtTen(TrainerCallback):  # type: ignore[misc]
    """Breaks a training off when step 10 has ended."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 10:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("whole") / "run", **TWELVE)


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Path:
    out = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(KeyboardInterrupt):
        opera.adapt(beir, model=static_model, out=out, callbacks=[StopAtTen], **TWELVE)
    return out


@pytest.fixture
def cut(cut_once: Path, tmp_path: Path) -> Path:
    """A run of twelve steps that broke off after the tenth, with checkpoints of steps 4 and 8."""
    return Path(shutil.copytree(cut_once, tmp_path / "cut"))


@pytest.fixture
def resume(beir: Path, static_model: Path) -> Callable[..., Run]:
    return lambda out, **more: opera.adapt(beir, model=static_model, out=out, **{"resume": True, **TWELVE, **more})


def test_who_may_read_the_run_may_read_its_checkpoints(cut: Path) -> None:
    """safetensors writes files for their owner alone."""
    files = [path for path in (cut / "checkpoints").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {cut.stat().st_mode & 0o666}


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_like_one_never_killed(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    """Every sixth change, with two checkpoints."""
    options = ("--steps", "4", "--set", "save_steps=2")
    whole = Killable(beir, bert_model, tmp_path / "whole", options)
    count = changes(whole.run().log)
    assert count > 50
    for moment in range(1, count + 1, 6):
        killed = Killable(beir, bert_model, tmp_path / str(moment), options)
        assert killed.run(moment).wait() == -signal.SIGKILL
        assert killed.run().wait() == 0
        assert_same_run(Run.open(killed.out), Run.open(whole.out))


def test_the_seconds_of_an_interrupted_session_are_kept(cut: Path, resume: Callable[..., Run]) -> None:
    seconds = Run.open(cut).record.seconds
    assert seconds["train"] > 0
    assert resume(cut).record.seconds["train"] > seconds["train"]


def test_an_unfinished_run_says_what_can_be_done(cut: Path, beir: Path, resume: Callable[..., Run]) -> None:
    assert Run.open(cut).record.status == "running"
    with pytest.raises(ModelError, match="this run is not finished and holds no model yet"):
        opera.evaluate(beir, model=cut)
    with pytest.raises(RunFolderError, match="holds a run; pass --resume"):
        resume(cut, resume=False)
    with pytest.raises(RunFolderError, match="was started differently; use the same settings") as caught:
        resume(cut, temperature=0.5)
    assert "temperature: the run has 0.1, this call 0.5" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("dp", {"update_interval": 7, "precision": "fp32", "gradient_accumulation_steps": 2}),
        ("dp", {"update_interval": "epoch"}),
        ("infobatch", {}),
        ("sp+dp", {}),
    ],
)
def test_every_state_resumes_to_the_same_weights(
    method: str,
    more: dict[str, Any],
    beir: Path,
    static_model: Path,
    bert_model: Path,
    tmp_path: Path,
    interrupted_at: InterruptedAt,
) -> None:
    settings = {**SMALL, "method": method, "guard": False, **more}
    model = bert_model if "precision" in more else static_model
    whole = opera.adapt(beir, model=model, out=tmp_path / "whole", **settings)
    with interrupted_at(6):
        opera.adapt(beir, model=model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 4
    assert_same_run(resumed, whole)
    assert opera.adapt(beir, model=model, out=tmp_path / "cut", resume=True, **settings).finished


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_no_pickle_in_a_checkpoint_runs(file: str, cut: Path, resume: Callable[..., Run], tmp_path: Path) -> None:
    """A checkpoint may come from a stranger."""
    checkpoint, mark = cut / "checkpoints" / "checkpoint-8", tmp_path / "code-ran"
    torch.save(Bomb(mark), checkpoint / file)
    mark_complete(checkpoint)
    with pytest.raises(UnpicklingError):
        resume(cut)
    assert not mark.exists()


@pytest.mark.parametrize("asks", [False, True])
def test_no_weights_in_a_checkpoint_are_unpickled(
    asks: bool, beir: Path, bert_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    settings, mark = {**SMALL, "guard": False}, tmp_path / "code-ran"
    with interrupted_at(6):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", **settings)
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-4"
    plant_bomb(checkpoint, mark, asks=asks)
    mark_complete(checkpoint)
    with pytest.raises((InputError, UnpicklingError)):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", resume=True, **settings)
    assert not mark.exists()


def test_a_checkpoint_of_other_pairs_is_refused(cut: Path, resume: Callable[..., Run]) -> None:
    folder = cut / "checkpoints" / "checkpoint-8"
    with np.load(folder / "sampler.npz") as arrays:
        np.savez(folder / "sampler.npz", **{**arrays, "0/fingerprint": arrays["0/fingerprint"] + 1})
    mark_complete(folder)
    with pytest.raises(TrainingError, match="belongs to other training pairs"):
        resume(cut)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1)))
@settings(max_examples=50)
def test_flatten_and_nest_undo_each_other(value: object) -> None:
    state = {"root": value}
    assert nest(flatten(state)) == state


def spoil_the_runs_trace(out: Path) -> None:
    (out / "trace.parquet").write_bytes(b"PAR1")


def lose_the_marker(out: Path) -> None:
    (out / "checkpoints" / "checkpoint-8" / "complete").unlink()


def put_strays_beside_it(out: Path) -> None:
    for name in ("checkpoint-old", "checkpoint-", "checkpoint-10x", "checkpoint-٣", "checkpoint-010"):
        (out / "checkpoints" / name).mkdir()
    (out / "checkpoints" / "checkpoint-11").write_text("a file")
    (out / "checkpoints" / "checkpoint-999999999").mkdir()
    os.mkfifo(out / "checkpoints" / "checkpoint-12")


@pytest.mark.parametrize(
    ("spoil", "resumed_from"),
    [
        (spoil_the_runs_trace, 8),
        (put_strays_beside_it, 8),
        (lose_the_marker, 4),
    ],
)
def test_a_resumed_run_ends_alike_whatever_it_lost(
    spoil: Callable[[Path], None],
    resumed_from: int,
    whole: Run,
    cut: Path,
    resume: Callable[..., Run],
    caplog: pytest.LogCaptureFixture,
) -> None:
    spoil(cut)
    with caplog.at_level("INFO", logger="opera"):
        resumed = resume(cut)
    assert resumed.training.resumed_from == resumed_from
    assert ("checkpoint-8 is incomplete" in caplog.text) == (resumed_from == 4)
    assert_same_run(resumed, whole)
    assert (resumed.path / "draws.parquet").read_bytes() == (whole.path / "draws.parquet").read_bytes()


def test_links_are_removed_and_not_followed(whole: Run, cut: Path, resume: Callable[..., Run], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("years of work")
    (cut / "checkpoints" / "checkpoint-12").symlink_to(elsewhere)
    assert_same_run(resume(cut), whole)
    for name in ("model", "checkpoints"):
        shutil.rmtree(cut / name)
        (cut / name).symlink_to(elsewhere)
    assert_same_run(resume(cut, resume=False, overwrite=True), whole)
    assert not (cut / "model").is_symlink()
    assert {path.name for path in elsewhere.iterdir()} == {"thesis.tex"}
