"""Checkpoints: runs that are killed, cut or damaged end like those that were not."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
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
from opera.data import Qrels
from opera.runs.folder import Run
from opera.training.checkpoint import damage, flatten, nest, seal
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


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "asks", "pytorch_model.bin"])
def test_no_pickle_in_a_checkpoint_runs(
    file: str, beir: Path, bert_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    """The seal is a check sum and no signature: whoever changes a file can seal it anew."""
    with interrupted_at(6):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", **SMALL)
    checkpoint, mark = tmp_path / "run" / "checkpoints" / "checkpoint-4", tmp_path / "code-ran"
    if file in ("asks", "pytorch_model.bin"):
        plant_bomb(checkpoint, mark, asks=file == "asks")
    else:
        torch.save(Bomb(mark), checkpoint / file)
    seal(checkpoint)
    with pytest.raises(
        InputError, match=r"not written by OPERA: .*posix\.mkdir|'weights_only': a model may not|its weights cannot be"
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

    def others(clean: Qrels, pool: noise.DocumentPool) -> noise.Candidates:
        return noise.Candidates(np.full(clean.n_queries, 60), lambda query, rng, count: np.arange(count) + 60)

    monkeypatch.setattr(noise, "random_candidates", others)
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("whole") / "run", **TWELVE)


TWELVE: dict[str, Any] = {**SMALL, "max_steps": 12}


def spoil_the_runs_trace(out: Path) -> None:
    (out / "trace.parquet").write_bytes(b"PAR1")
    (out / "sampling.npz").unlink()


def spoil_the_checkpoints_trace(out: Path) -> None:
    path = out / "checkpoints" / "checkpoint-8" / "trace.parquet"
    path.write_bytes(path.read_bytes()[::-1])


def put_strays_beside_it(out: Path) -> None:
    for name in ("checkpoint-old", "checkpoint-", "checkpoint-10x", "checkpoint-٣", "checkpoint-010"):
        (out / "checkpoints" / name).mkdir()
    (out / "checkpoints" / "checkpoint-11").write_text("a file")
    (out / "checkpoints" / "checkpoint-999999999").mkdir()
    os.mkfifo(out / "checkpoints" / "checkpoint-12")


def name_a_pipe_in_the_seal(out: Path) -> None:
    folder = out / "checkpoints" / "checkpoint-8"
    (folder / "sampler.npz").unlink()
    os.mkfifo(folder / "sampler.npz")


def name_a_file_elsewhere_in_the_seal(out: Path) -> None:
    path = out / "checkpoints" / "checkpoint-8" / "whole.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "../../../secret": "0" * 64}))


@pytest.mark.parametrize(
    ("spoil", "resumed_from"),
    [
        (spoil_the_runs_trace, 8),
        (spoil_the_checkpoints_trace, 4),
        (put_strays_beside_it, 8),
        (name_a_pipe_in_the_seal, 4),
        (name_a_file_elsewhere_in_the_seal, 4),
    ],
)
def test_a_resumed_run_ends_alike_whatever_became_of_its_files(
    spoil: Callable[[Path], None],
    resumed_from: int,
    whole: Run,
    beir: Path,
    static_model: Path,
    tmp_path: Path,
    interrupted_at: InterruptedAt,
) -> None:
    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **TWELVE)
    spoil(tmp_path / "cut")
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **TWELVE)
    assert resumed.training.resumed_from == resumed_from
    assert_same_run(resumed, whole)
    assert (resumed.path / "sampling.npz").read_bytes() == (whole.path / "sampling.npz").read_bytes()


def test_links_are_removed_and_not_followed(
    whole: Run, beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    out, elsewhere = tmp_path / "cut", tmp_path / "elsewhere"
    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=out, **TWELVE)
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("years of work")
    (out / "checkpoints" / "checkpoint-12").symlink_to(elsewhere)
    assert_same_run(opera.adapt(beir, model=static_model, out=out, resume=True, **TWELVE), whole)
    for name in ("model", "checkpoints"):
        shutil.rmtree(out / name)
        (out / name).symlink_to(elsewhere)
    assert_same_run(opera.adapt(beir, model=static_model, out=out, overwrite=True, **TWELVE), whole)
    assert not (out / "model").is_symlink()
    assert {path.name for path in elsewhere.iterdir()} == {"thesis.tex"}


def test_a_sealed_checkpoint_that_makes_no_sense_is_named(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    out = tmp_path / "cut"
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=out, **TWELVE)
    folder = out / "checkpoints" / "checkpoint-4"
    for name, content in (
        ("trainer_state.json", b"{}"),
        ("model.safetensors", b"no tensors"),
        ("sampler.npz", b"PK\x03\x04"),
    ):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        seal(folder)
        with pytest.raises(RunFolderError, match=rf"{folder}.*: (cannot be resumed|is not as OPERA wrote it)"):
            opera.adapt(beir, model=static_model, out=out, resume=True, **TWELVE)
        (folder / name).write_bytes(before)


@pytest.mark.skipif(os.name != "posix", reason="no permissions")
def test_a_checkpoint_that_cannot_be_read_gives_way(
    tmp_path: Path, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: InterruptedAt
) -> None:
    """Of another user: opening it is refused, to root as well."""
    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **TWELVE)
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if "checkpoint-8" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert "cannot be read" in damage(tmp_path / "cut" / "checkpoints" / "checkpoint-8")
    assert damage(tmp_path / "cut" / "checkpoints" / "checkpoint-4") == ""
