"""Real processes: killed, interrupted, and several training together."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import opera
from opera.core.errors import RunFolderError, SettingError
from opera.runs.folder import Run

InterruptedAt = Callable[[int], AbstractContextManager[None]]

BASE = ["--set", "temperature=0.1", "--set", "precision=fp32"]
SHORT = ["--lr", "0.01", "--steps", "24", "--batch-size", "8", "--set", "save_steps=3"]


def command(beir: Path, model: Path, out: Path, *more: str) -> list[str]:
    return ["-m", "opera", "train", str(beir), "--model", str(model), "--out", str(out), *BASE, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, *arguments], stdout=file, stderr=file, env=environment())


def weights(run: Run) -> str:
    return hashlib.sha256(next(run.model_path.rglob("model.safetensors")).read_bytes()).hexdigest()


def checkpoints(out: Path) -> list[int]:
    return sorted(int(path.name.rsplit("-", 1)[-1]) for path in (out / "checkpoints").glob("checkpoint-*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, beir: Path, bert_model: Path) -> Run:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    done = start(command(beir, bert_model, folder / "run", *SHORT), folder / "log")
    assert done.wait(120) == 0, (folder / "log").read_text()
    return Run.open(folder / "run")


def same(one: Run, other: Run) -> None:
    assert weights(one) == weights(other)
    assert one.pairs() == other.pairs()
    assert one.trace().drop_columns("seconds") == other.trace().drop_columns("seconds")


def test_a_run_killed_at_random_moments_ends_like_one_never_killed(
    whole: Run, beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    out, moments = tmp_path / "run", random.Random(4)
    kills = 0
    for sitting in range(4):
        resume = ["--resume"] if (out / "run.json").exists() else []
        process = start(command(beir, bert_model, out, *SHORT, *resume), tmp_path / f"log{sitting}")
        target = (max(checkpoints(out), default=0)) + moments.randint(1, 6)
        while process.poll() is None and max(checkpoints(out), default=0) < min(target, 24):
            time.sleep(0.002)
        if process.poll() is None and sitting < 3:
            time.sleep(moments.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            kills += 1
        assert process.wait(120) in (0, -signal.SIGKILL), (tmp_path / f"log{sitting}").read_text()
        if process.returncode == 0:
            break
    assert kills >= 2
    run = Run.open(out)
    assert run.finished
    assert run.about["training"]["resumed_from"] > 0
    same(run, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    beir: Path, bert_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    more = ["--lr", "0.01", "--batch-size", "8", "--steps", "600", "--set", "save_steps=1000"]
    process = start(command(beir, bert_model, out, *more), log)
    while process.poll() is None and "dynamic pruning" not in log.read_text():
        time.sleep(0.01)
    time.sleep(1.5)
    process.send_signal(number)
    assert process.wait(60) == 130, log.read_text()
    said = log.read_text()
    (step,) = checkpoints(out)
    assert "saving a checkpoint, then stopping" in said
    assert f"the same command with --resume, without --overwrite, goes on from step {step}" in said
    assert Run.open(out).about["status"] == "running"
    process = start(command(beir, bert_model, out, *more, "--resume"), tmp_path / "log2")
    assert process.wait(120) == 0, (tmp_path / "log2").read_text()
    assert Run.open(out).about["training"]["resumed_from"] == step
    assert Run.open(out).trace().num_rows == 600


def torchrun(arguments: list[str], log: Path, processes: int = 2) -> subprocess.Popen[bytes]:
    return start(["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *arguments], log)


@pytest.mark.parametrize("method", ["dp", "infobatch"])
def test_two_processes_train_like_one(method: str, beir: Path, bert_model: Path, tmp_path: Path) -> None:
    more = ["--method", method, "--steps", "24", "--set", "train_group_size=3", "--set", "dropout=0"]
    more += ["--set", "optim=sgd", "--set", "max_grad_norm=0", "--lr", "0.03"]  # hides no scale of the gradient
    more += ["--set", "gradient_accumulation_steps=2"]
    runs = []
    for name, starter, batch in (("one", start, "8"), ("two", torchrun, "4")):
        process = starter(command(beir, bert_model, tmp_path / name, "--batch-size", batch, *more), tmp_path / "log")
        assert process.wait(180) == 0, (tmp_path / "log").read_text()
        runs.append(Run.open(tmp_path / name))
    one, two = runs
    assert (one.about["processes"], two.about["processes"]) == (1, 2)
    assert one.pairs()["times_drawn"] == two.pairs()["times_drawn"]
    for column in ("loss", "learning_rate"):
        assert np.allclose(one.trace()[column].to_numpy(), two.trace()[column].to_numpy(), atol=5e-5), column
    files = [next(run.model_path.rglob("model.safetensors")) for run in runs]
    first, second = (load_file(path) for path in files)
    assert max(float(np.abs(first[name] - second[name]).max()) for name in first) < 5e-5
    with pytest.raises(RunFolderError, match="holds another run"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "two")


GRADIENTS = """
import os, sys
import numpy as np, torch
import torch.distributed as dist
from opera.data import load_data
from opera.methods import METHODS, Plan
from opera.training_set.negatives import RandomNegatives
from opera.retrieval.models import load_model
from opera.training_set.known_positives import KnownPositives
from opera.training.sampler import PairSampler
from opera.training.dataset import PairDataset
from opera.training.loss import InfoNCELoss

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")
folder, model_folder, out = sys.argv[1:]
data, model = load_data(folder), load_model(model_folder, "cpu").eval()
training = data.training_split()
pairs = training.pairs()
method = METHODS["ft"](pairs, Plan(0, 1, 12), None)
sampler = PairSampler(method, pairs, RandomNegatives(len(data.corpus)), 2, 12 // world, 1, rank, world)
rows = next(iter(sampler))
items = PairDataset(data, training.query_rows, pairs.n_pairs, 2, "title_text").__getitems__(rows)
columns = [name for name in items[0] if name != "label"]
features = [model.preprocess([item[name] for item in items]) for name in columns]
labels = torch.tensor([item["label"] for item in items])
seen = []
loss = InfoNCELoss(model, pairs, 0.05, KnownPositives(pairs, len(data.corpus)), lambda *a: seen.append(a))
value = loss(features, labels)
value.backward()
parts = [value.detach().reshape(1), *(p.grad.flatten() for p in model.parameters() if p.grad is not None)]
flat = torch.cat(parts)
if world > 1:  # what DDP does: the mean over the processes
    dist.all_reduce(flat)
    flat /= world
if rank == 0:
    np.savez(out, gradient=flat.numpy(), pairs=seen[0][1], similarity=seen[0][2], loss=seen[0][3])
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_of_several_processes_are_those_of_one(
    processes: int, beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    """The loss, its gradient in every parameter, and what is observed: with the mask and two negatives a pair."""
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    found = []
    for name, starter in (("one", start), ("more", lambda a, log: torchrun(a, log, processes))):
        out = tmp_path / f"{name}.npz"
        process = starter([str(script), str(beir), str(bert_model), str(out)], tmp_path / "log")
        assert process.wait(120) == 0, (tmp_path / "log").read_text()
        found.append(dict(np.load(out)))
    one, more = found
    assert np.array_equal(one["pairs"], more["pairs"])
    for part in ("similarity", "loss"):
        assert np.allclose(one[part], more[part], atol=1e-5)
    assert np.abs(one["gradient"]).max() > 0.01
    assert np.allclose(one["gradient"], more["gradient"], atol=1e-5)


def test_a_dead_process_ends_the_run_with_a_message(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, sys\n"
        "from opera.training.callbacks import Trace\n"
        "end = Trace.on_step_end\n"
        "def dies(self, args, state, control, **kwargs):\n"
        "    end(self, args, state, control, **kwargs)\n"
        "    if state.global_step == 5 and os.environ['RANK'] == '1':\n"
        "        os._exit(7)\n"
        "Trace.on_step_end = dies\n"
        "from opera.cli import main\n"
        "main()\n"
    )
    arguments = command(beir, bert_model, tmp_path / "run", "--steps", "24", "--batch-size", "4")[2:]
    process = torchrun([str(script), *arguments], tmp_path / "log")
    assert process.wait(120) != 0
    said = (tmp_path / "log").read_text()
    assert "exitcode" in said
    assert "another process ended; see its message" in said


def test_workers_read_ahead_as_far_as_the_lag_says(beir: Path, static_model: Path, tmp_path: Path) -> None:
    """The same lag without workers trains to the same weights, with gradient accumulation too."""
    fast = {"max_steps": 40, "per_device_train_batch_size": 4, "learning_rate": 0.3, "save_steps": 50}
    for accumulation, lag in ((1, 3), (2, 2)):
        settings = {**fast, "gradient_accumulation_steps": accumulation}
        plain = opera.adapt(beir, model=static_model, out=tmp_path / f"plain{lag}", lag=lag, **settings)
        ahead = opera.adapt(
            beir, model=static_model, out=tmp_path / f"ahead{lag}", dataloader_num_workers=1, **settings
        )
        assert plain.about["training"]["lag"] == ahead.about["training"]["lag"] == lag
        same(plain, ahead)
        shorter = opera.adapt(beir, model=static_model, out=tmp_path / f"short{lag}", lag=1, **settings)
        assert weights(shorter) != weights(plain)
    with pytest.raises(SettingError, match="lag=1: with dataloader_num_workers=1 batches are drawn 2 steps ahead"):
        opera.adapt(beir, model=static_model, out=tmp_path / "no", dataloader_num_workers=1, lag=1, **fast)


def test_resuming_with_workers_loses_nothing_that_was_read_ahead(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    settings = {
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.05,
        "save_steps": 5,
        "dataloader_num_workers": 2,
    }
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)
    with interrupted_at(7):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.about["training"]["resumed_from"] == 5
    same(resumed, whole)


def test_early_stopping_and_the_best_model_survive_a_resume(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    folder = make_beir(dev=True)
    settings = {
        "max_steps": 400,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.05,
        "temperature": 0.1,
        "eval_steps": 10,
        "early_stopping_patience": 3,
        "load_best_model_at_end": True,
    }
    whole = opera.adapt(folder, model=static_model, out=tmp_path / "whole", **settings)
    stopped = whole.about["training"]
    assert stopped["steps"] < 400
    with interrupted_at(stopped["steps"] - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.about["training"]["resumed_from"] == stopped["steps"] - 10
    # Cut once more, when patience has run out and its checkpoint is saved, but nothing is measured yet.
    about = json.loads((resumed.path / "run.json").read_text())
    (resumed.path / "run.json").write_text(json.dumps({**about, "status": "running"}))
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.about["training"]["resumed_from"] == stopped["steps"]
    for fact in ("steps", "best_step", "best_value"):
        assert resumed.about["training"][fact] == stopped[fact]
    same(resumed, whole)


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
        assert "checkpoint-12 is not whole (" in caplog.text
        assert "is damaged); going on from the one before" in caplog.text
        assert resumed.about["training"]["resumed_from"] == 8
        assert weights(resumed) == weights(whole)
