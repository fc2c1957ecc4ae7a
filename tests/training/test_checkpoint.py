"""Checkpoints: runs that are killed, cut or damaged end like those that were not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch

import opera
from attacks import Bomb, plant_bomb
from small_runs import SMALL, assert_same_run, interrupted_at

TWELVE = {**SMALL, "max_steps": 12}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, beir, static_model) -> opera.Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("uninterrupted") / "run", **TWELVE)


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory, beir, static_model) -> Path:
    out = tmp_path_factory.mktemp("cut") / "run"
    with interrupted_at(10):
        opera.adapt(beir, model=static_model, out=out, **TWELVE)
    return out


@pytest.fixture
def cut(cut_once, tmp_path) -> Path:
    """A run of twelve steps that broke off after the tenth, with checkpoints of steps 4 and 8."""
    return Path(shutil.copytree(cut_once, tmp_path / "cut"))


@pytest.fixture
def resume(beir, static_model) -> Callable[..., opera.Run]:
    return lambda out, **more: opera.adapt(beir, model=static_model, out=out, **{"resume": True, **TWELVE, **more})


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_no_pickle_in_a_checkpoint_runs(file, cut, resume, tmp_path):
    """A checkpoint may come from a stranger."""
    mark = tmp_path / "code-ran"
    torch.save(Bomb(mark), cut / "checkpoints" / "checkpoint-8" / file)
    with pytest.raises(UnpicklingError):
        resume(cut)
    assert not mark.exists()


@pytest.mark.parametrize("asks", [False, True])
def test_no_weights_in_a_checkpoint_are_unpickled(asks, beir, bert_model, tmp_path):
    call = {**SMALL, "guard": False, "model": bert_model, "out": tmp_path / "run"}
    with interrupted_at(6):
        opera.adapt(beir, **call)
    plant_bomb(tmp_path / "run" / "checkpoints" / "checkpoint-4", tmp_path / "code-ran", asks=asks)
    with pytest.raises((opera.InputError, UnpicklingError)):
        opera.adapt(beir, resume=True, **call)
    assert not (tmp_path / "code-ran").exists()


def test_a_run_goes_on_from_its_newest_complete_checkpoint(uninterrupted, cut, resume, caplog):
    (cut / "trace.parquet").write_bytes(b"PAR1")
    (cut / "checkpoints" / "checkpoint-8" / "complete").unlink()
    (cut / "checkpoints" / "checkpoint-old").mkdir()
    seconds = opera.Run.open(cut).record.seconds["train"]
    with caplog.at_level("INFO", logger="opera"):
        resumed = resume(cut)
    assert "checkpoint-8 is incomplete" in caplog.text
    assert resumed.training.resumed_from == 4
    assert resumed.record.seconds["train"] > seconds > 0
    assert_same_run(resumed, uninterrupted)
    assert (resumed.path / "draws.parquet").read_bytes() == (uninterrupted.path / "draws.parquet").read_bytes()


def test_links_are_removed_and_not_followed(uninterrupted, cut, resume, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("years of work")
    (cut / "checkpoints" / "checkpoint-12").symlink_to(elsewhere)
    assert_same_run(resume(cut), uninterrupted)
    for name in ("model", "checkpoints"):
        shutil.rmtree(cut / name)
        (cut / name).symlink_to(elsewhere)
    assert_same_run(resume(cut, resume=False, overwrite=True), uninterrupted)
    assert not (cut / "model").is_symlink()
    assert {path.name for path in elsewhere.iterdir()} == {"thesis.tex"}
