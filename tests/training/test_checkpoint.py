"""Checkpoints: runs that are killed, cut or damaged end like those that were not."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from attacks import Bomb, plant_bomb
from killable import Killable, changes
from opera.core.errors import InputError, ModelError, RunFolderError, TrainingError
from opera.runs.folder import Run
from opera.training.checkpoint import flatten, nest, seal
from small_runs import SMALL, InterruptedAt, assert_same_run, weights


def test_a_run_killed_at_random_moments_ends_like_one_never_killed(
    beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    moments = random.Random(4)
    options = ("--steps", "18", "--set", "save_steps=3")
    killed = Killable(beir, bert_model, tmp_path / "killed", options)
    statuses = [killed.run(moments.randint(1, 120)).wait() for _ in range(5)]
    assert statuses.count(-signal.SIGKILL) >= 4
    assert killed.run().wait() == 0
    whole = Killable(beir, bert_model, tmp_path / "whole", options)
    assert whole.run().wait() == 0
    assert Run.open(killed.out).finished
    assert_same_run(Run.open(killed.out), Run.open(whole.out))


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_like_one_never_killed(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    """Every third change, with two checkpoints."""
    options = ("--steps", "4", "--set", "save_steps=2")
    whole = Killable(beir, bert_model, tmp_path / "whole", options)
    count = changes(whole.run().log)
    assert count > 50
    for moment in range(1, count + 1, 3):
        killed = Killable(beir, bert_model, tmp_path / str(moment), options)
        assert killed.run(moment).wait() == -signal.SIGKILL
        assert killed.run().wait() == 0
        assert_same_run(Run.open(killed.out), Run.open(whole.out))


@pytest.mark.parametrize("interval", [1, 7, "epoch"])
def test_an_interrupted_run_resumes_to_the_same_weights(
    beir: Path, bert_model: Path, tmp_path: Path, interrupted_at: InterruptedAt, interval: object
) -> None:
    settings = {
        **SMALL,
        "method": "dp",
        "update_interval": interval,
        "precision": "fp32",
        "gradient_accumulation_steps": 2,
    }
    whole = opera.adapt(beir, model=bert_model, out=tmp_path / "whole", **settings)

    with interrupted_at(6):
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", **settings)
    assert Run.open(tmp_path / "cut").record.status == "running"
    with pytest.raises(ModelError, match="this run is not finished and holds no model yet"):
        opera.evaluate(beir, model=tmp_path / "cut")
    with pytest.raises(RunFolderError, match="holds an unfinished run"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", **settings)
    with pytest.raises(RunFolderError, match="was started differently; use the same settings") as caught:
        opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **{**settings, "temperature": 0.5})
    assert "temperature: the run has 0.1, this call 0.5" in str(caught.value)
    resumed = opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 4
    assert resumed.trace().drop_columns("seconds") == whole.trace().drop_columns("seconds")
    assert weights(resumed) == weights(whole)
    assert opera.adapt(beir, model=bert_model, out=tmp_path / "cut", resume=True, **settings).finished


@pytest.mark.parametrize("method", ["infobatch", "sp+dp"])
def test_methods_with_state_of_their_own_resume_to_the_same_weights(
    method: str, beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    settings = {**SMALL, "max_steps": 12, "method": method}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)

    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 8
    assert weights(resumed) == weights(whole)
    assert resumed.pairs() == whole.pairs()


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"])
def test_no_pickle_in_a_checkpoint_runs(
    file: str, beir: Path, bert_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    """The seal is a check sum and no signature: whoever changes a file can seal it anew."""
    with interrupted_at(6):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", **SMALL)
    checkpoint, mark = tmp_path / "run" / "checkpoints" / "checkpoint-4", tmp_path / "code-ran"
    if file == "pytorch_model.bin":
        plant_bomb(checkpoint, mark)
    else:
        torch.save(Bomb(mark), checkpoint / file)
    seal(checkpoint)
    with pytest.raises(
        InputError, match=r"not written by OPERA: .*posix\.mkdir|its weights cannot be read: .*no file named"
    ):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", resume=True, **SMALL)
    assert not mark.exists()


def test_a_checkpoint_of_other_pairs_is_refused(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: InterruptedAt
) -> None:
    settings = {**SMALL, "noise": "random", "noise_share": 0.3}
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)

    from opera.training_set import noise

    monkeypatch.setattr(noise.RandomCandidates, "draw", lambda self, query, rng, count: np.arange(count) + 60)
    with pytest.raises(TrainingError, match="belongs to other training pairs"):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)


def test_a_checkpoint_cut_off_while_written_falls_back_to_the_one_before(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "max_steps": 12}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)

    from opera.training import checkpoint

    replace_file = checkpoint.replace_file

    def cut(path: Path, write: Callable[[Path], Any]) -> None:
        if path.parent.name == "checkpoint-8":
            raise KeyboardInterrupt
        replace_file(path, write)

    monkeypatch.setattr(checkpoint, "replace_file", cut)
    with pytest.raises(KeyboardInterrupt):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    monkeypatch.undo()
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 4
    assert weights(resumed) == weights(whole)
    assert resumed.trace().drop_columns("seconds") == whole.trace().drop_columns("seconds")


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"max_steps": 12, "per_device_train_batch_size": 4, "learning_rate": 0.05, "save_steps": 4}
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)
    for number, spoil in enumerate((b"", b"x")):
        out = tmp_path / f"run{number}"
        opera.adapt(beir, model=static_model, out=out, **settings)
        about = json.loads((out / "run.json").read_text())
        (out / "run.json").write_text(json.dumps({**about, "status": "running"}))
        victim = next((out / "checkpoints" / "checkpoint-12").rglob("*.safetensors"))
        content = victim.read_bytes()
        victim.write_bytes(content[: len(content) // 2] if not spoil else content[:-1] + spoil)
        with caplog.at_level("INFO", logger="opera"):
            resumed = opera.adapt(beir, model=static_model, out=out, resume=True, **settings)
        assert "checkpoint-12 cannot be used (" in caplog.text
        assert "is damaged); resuming from the one before" in caplog.text
        assert resumed.training.resumed_from == 8
        assert weights(resumed) == weights(whole)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1)))
@settings(max_examples=50)
def test_flatten_and_nest_undo_each_other(value: object) -> None:
    state = {"root": value}
    assert nest(flatten(state)) == state
