"""``--overwrite``: the folder holds the old run or the new one, whole, whatever ends the process."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

import opera
from opera.run_folder.housekeeping import new_folder, run_started_after
from processes import Child, start
from small_runs import SMALL, assert_same_run, train_command, weights

UNDER_FAULT = Path(__file__).parents[1] / "chaos" / "under_fault.py"


@pytest.fixture(scope="module")
def old(beir, static_model, tmp_path_factory) -> opera.Run:
    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("old") / "run", method="dp", **SMALL)


@pytest.fixture
def out(old, tmp_path) -> Path:
    shutil.copytree(old.path, tmp_path / "run")
    (tmp_path / "run" / "my-notes.txt").write_text("keep me")
    return tmp_path / "run"


class Fails(TrainerCallback):
    """Raises an error after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("the device is lost")


def test_a_failed_run_leaves_the_old_one_and_continues(beir, static_model, old, out, tmp_path):
    settings = {"model": static_model, "out": out, "method": "dp", "seed": 1, **SMALL}
    started = time.time()
    assert not run_started_after(out, started)
    for step in (1, 5):
        with pytest.raises(RuntimeError, match="the device is lost"):
            opera.adapt(beir, **settings, overwrite=True, callbacks=[Fails(step)])
        assert_same_run(opera.Run.open(out), old)
        assert run_started_after(out, started)  # which tells the user to resume
    with pytest.raises(opera.RunFolderError, match="was started differently"):
        opera.adapt(beir, **{**settings, "seed": 2}, resume=True)
    run = opera.adapt(beir, **settings, resume=True)
    assert run.training.resumed_from == 4
    assert (out / "my-notes.txt").read_text() == "keep me"
    assert set(tmp_path.iterdir()) == {out}
    assert_same_run(run, opera.adapt(beir, **{**settings, "out": tmp_path / "undisturbed"}))
    log = (out / "run.log").read_text()
    assert f"note: {out} stays as it is until {new_folder(out)} is finished" in log
    assert opera.adapt(beir, **settings, resume=True).record == run.record


def overwritten(beir: Path, model: Path, out: Path, fault: str, at: int, *more: str) -> Child:
    """Start the command that overwrites, or more words to continue it, under a fault at its n-th change."""
    words = train_command(beir, model, out, "--method", "dp", "--steps", "8", "--seed", "1", "--set", "save_steps=4")
    return start([str(UNDER_FAULT), fault, str(at), str(out.parent), *words, *more], out.parent.with_name(f"log-{at}"))


@pytest.mark.slow
def test_killed_at_any_moment_the_folder_holds_a_whole_run(beir, static_model, old, tmp_path):
    """Among the last changes of the files are those before and after the exchange."""
    home = tmp_path / "home"
    shutil.copytree(old.path, home / "run")
    child = overwritten(beir, static_model, home / "run", "none", 10**9, "--overwrite")
    assert child.wait() == 0, child.log.read_text()
    count = int(child.log.read_text().split()[-2])
    new, outcomes = weights(opera.Run.open(home / "run")), set()
    for back in (count // 2, 12, 6, 5, 4, 3, 2, 1, 0):
        shutil.rmtree(home)
        shutil.copytree(old.path, home / "run")
        child = overwritten(beir, static_model, home / "run", "kill", count - back, "--overwrite")
        assert child.wait() == -9, child.log.read_text()
        run = opera.Run.open(home / "run")
        assert run.finished
        run.measures, run.review(), run.per_query()
        assert weights(run) in (weights(old), new)
        assert (weights(run) == new) == (run.settings["seed"] == 1)
        outcomes.add(weights(run))
        goes_on = run.settings["seed"] == 1 or (new_folder(home / "run") / "run.json").exists()
        end = overwritten(beir, static_model, home / "run", "none", 10**9, "--resume" if goes_on else "--overwrite")
        assert end.wait() == 0, end.log.read_text()
        assert weights(opera.Run.open(home / "run")) == new
        assert {path.name for path in home.iterdir()} == {"run"}
    assert outcomes == {weights(old), new}
