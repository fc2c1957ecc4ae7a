"""Real processes: killed, interrupted, and several training together."""

from __future__ import annotations

import hashlib
import json
import random
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import opera
from opera.core.errors import RunFolderError, SettingError
from opera.runs.folder import Run
from processes import DEADLINE, start, torchrun

InterruptedAt = Callable[[int], AbstractContextManager[None]]

SMALL = ["--lr", "0.01", "--batch-size", "8", "--set", "temperature=0.1", "--set", "precision=fp32"]


def command(beir: Path, model: Path, out: Path, *more: str) -> list[str]:
    return ["train", str(beir), "--model", str(model), "--out", str(out), *SMALL, *more]


def weights(run: Run) -> str:
    return hashlib.sha256(next(run.model_path.rglob("model.safetensors")).read_bytes()).hexdigest()


def checkpoints(out: Path) -> list[int]:
    return sorted(int(path.name.rsplit("-", 1)[-1]) for path in (out / "checkpoints").glob("checkpoint-*"))


def same(one: Run, other: Run) -> None:
    assert weights(one) == weights(other)
    assert one.pairs() == other.pairs()
    assert one.trace().drop_columns("seconds") == other.trace().drop_columns("seconds")


KILLED = """
import os, signal, sys

left, out, *arguments = sys.argv[1:]
left = int(left)


def kill(event, details):
    global left
    written = event == "open" and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (written or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")) and str(details[0]).startswith(out):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(kill)
sys.argv = ["opera", *arguments]
from opera.cli import main

main()
"""


def test_a_run_killed_at_random_moments_ends_like_one_never_killed(
    beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    """A moment is a change of the run folder: a file opened for writing, renamed or removed, a folder made.

    What happens between two changes dies with the process, so other moments are no different.
    """
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    out, moments = tmp_path / "run", random.Random(4)
    steps = ["--steps", "18", "--set", "save_steps=3"]
    statuses = []
    for left in [moments.randint(1, 120) for _ in range(5)] + [10**9]:
        resume = ["--resume"] if (out / "run.json").exists() else []
        log = tmp_path / f"log{len(statuses)}"
        arguments = command(beir, bert_model, out, *steps, *resume)
        statuses.append(start([str(script), str(left), str(out), *arguments], log).wait())
        assert statuses[-1] in (0, -signal.SIGKILL), log.read_text()
    assert statuses.count(-signal.SIGKILL) >= 4
    assert statuses[-1] == 0
    run = Run.open(out)
    assert run.finished
    whole = tmp_path / "whole"
    assert start(["-m", "opera", *command(beir, bert_model, whole, *steps)], tmp_path / "log").wait() == 0
    same(run, Run.open(whole))


SIGNALLED = """
import functools, sys
from pathlib import Path
from opera.training import adapt as module
from waiting import WaitsForASignal

reached, *arguments = sys.argv[1:]
module.adapt = functools.partial(module.adapt, callbacks=[WaitsForASignal(5, Path(reached))])
sys.argv = ["opera", *arguments]
from opera.cli import main

main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    beir: Path, bert_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The sixth step waits for the signal before it begins."""
    script, out, reached = tmp_path / "signalled.py", tmp_path / "run", tmp_path / "reached"
    script.write_text(SIGNALLED)
    arguments = command(beir, bert_model, out, "--steps", "12", "--set", "save_steps=1000")
    child = start([str(script), str(reached), *arguments], tmp_path / "log")
    child.wait_until(reached.exists)
    child.send_signal(number)
    assert child.wait() == 130, child.log.read_text()
    said = child.log.read_text()
    assert checkpoints(out) == [6]
    assert "saving a checkpoint, then stopping" in said
    assert "the same command with --resume, without --overwrite, continues from step 6" in said
    assert Run.open(out).record.status == "running"
    resumed = start(["-m", "opera", *arguments, "--resume"], tmp_path / "log2")
    assert resumed.wait() == 0, resumed.log.read_text()
    assert Run.open(out).training.resumed_from == 6
    assert Run.open(out).trace().num_rows == 12


IN_FLOAT64 = """
import functools, sys
from transformers import TrainerCallback
from opera.training import adapt as module


class InFloat64(TrainerCallback):
    def on_init_end(self, args, state, control, model=None, **kwargs):
        model.double()


module.adapt = functools.partial(module.adapt, callbacks=[InFloat64()])
batch, data, model, out = sys.argv[1:]
settings = dict(
    max_steps=12, per_device_train_batch_size=int(batch), gradient_accumulation_steps=2, train_group_size=3,
    temperature=0.1, dropout=0.0, precision="fp32",
    optim="sgd", max_grad_norm=0.0, learning_rate=0.03,  # hides no scale of the gradient
)
module.adapt(data, model=model, out=f"{out}/dp", method="dp", **settings)
options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
sys.argv = ["opera", "train", data, "--model", model, "--out", f"{out}/infobatch", "--method", "infobatch", *options]
from opera.cli import main

main()
"""


def test_two_processes_train_like_one(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    """The same draws, losses and weights, by ``adapt`` and by the command.

    Two processes add the same numbers in another order. In float64 that changes a sum of n ≤ 1000 terms of size 10 by
    less than n·2⁻⁵³·10 = 1e-12 per step. To reach 1e-9, 12 steps would have to amplify it a thousand times, while a
    wrong scale or a missing negative moves weights by 1e-3. Observed losses are rounded to float32, so their means may
    differ by one last bit. A draw differs only where a loss lies within that bit of the next one or of the mean; the
    seeds are fixed, so in float64 this happens on every machine or on none.
    """
    script = tmp_path / "in_float64.py"
    script.write_text(IN_FLOAT64)
    two = torchrun([str(script), "4", str(beir), str(bert_model), str(tmp_path / "two")], tmp_path / "log2")
    one = start([str(script), "8", str(beir), str(bert_model), str(tmp_path / "one")], tmp_path / "log1")
    assert one.wait() == 0, one.log.read_text()
    assert two.wait(DEADLINE) == 0, (tmp_path / "log2").read_text()
    for method in ("dp", "infobatch"):
        first, second = (Run.open(tmp_path / name / method) for name in ("one", "two"))
        assert (first.record.processes, second.record.processes) == (1, 2)
        assert first.pairs()["times_drawn"] == second.pairs()["times_drawn"]
        assert first.trace()["learning_rate"] == second.trace()["learning_rate"]
        losses = [run.trace()["loss"].to_numpy() for run in (first, second)]
        np.testing.assert_allclose(*losses, rtol=2.0**-23, atol=0)
        tables = [load_file(next(run.model_path.rglob("model.safetensors"))) for run in (first, second)]
        for name, table in tables[0].items():
            assert table.dtype == np.float64
            np.testing.assert_allclose(table, tables[1][name], rtol=0, atol=1e-9)
    with pytest.raises(RunFolderError, match="holds another run"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "two" / "dp")


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
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
folder, model_folder, out = sys.argv[1:]
data, model = load_data(folder), load_model(model_folder, "cpu").eval().double()
training = data.training_split()
pairs = training.pairs()
method = METHODS["ft"](pairs, Plan(0, 1, 12), None)
sampler = PairSampler(method, pairs, RandomNegatives(len(data.corpus)), 2, 12 // world, 1, rank, world)
rows = next(iter(sampler))
items = PairDataset(data, training.query_rows, 2, "title_text").__getitems__(rows)
columns = [name for name in items[0] if name != "label"]
features = [model.preprocess([item[name] for item in items]) for name in columns]
labels = torch.tensor([item["label"] for item in items])
seen = []
loss = InfoNCELoss(model, sampler, 0.05, KnownPositives(pairs, len(data.corpus)), lambda *a: seen.append(a))
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
    """The loss, its gradient in every parameter, and what is observed: with the mask and two negatives a pair.

    In float64, where other orders of the sums change them by less than 1e-12; observed values are rounded to float32.
    """
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    found = []
    for world in (1, processes):
        out = tmp_path / f"{world}.npz"
        arguments = [str(script), str(beir), str(bert_model), str(out)]
        shared = {"WORLD_SIZE": str(world), "MEETING": str(tmp_path / f"meeting{world}")}
        children = [start(arguments, tmp_path / f"log{rank}", RANK=str(rank), **shared) for rank in range(world)]
        for child in children:
            assert child.wait() == 0, child.log.read_text()
        found.append(dict(np.load(out)))
    one, more = found
    assert np.array_equal(one["pairs"], more["pairs"])
    for part in ("similarity", "loss"):
        np.testing.assert_allclose(one[part], more[part], rtol=0, atol=1e-6 * np.abs(one[part]).max())
    assert one["gradient"].dtype == np.float64
    assert np.abs(one["gradient"]).max() > 0.01
    np.testing.assert_allclose(one["gradient"], more["gradient"], rtol=0, atol=1e-10)


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
    arguments = command(beir, bert_model, tmp_path / "run", "--steps", "24")
    process = torchrun([str(script), *arguments], tmp_path / "log")
    assert process.wait(DEADLINE) != 0
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
        assert plain.training.lag == ahead.training.lag == lag
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
    assert resumed.training.resumed_from == 5
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
    stopped = whole.training
    assert stopped.steps < 400
    with interrupted_at(stopped.steps - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps - 10
    # Cut once more, when patience has run out and its checkpoint is saved, but nothing is measured yet.
    about = json.loads((resumed.path / "run.json").read_text())
    (resumed.path / "run.json").write_text(json.dumps({**about, "status": "running"}))
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps
    for fact in ("steps", "best_step", "best_value"):
        assert getattr(resumed.training, fact) == getattr(stopped, fact)
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
        assert "checkpoint-12 cannot be used (" in caplog.text
        assert "is damaged); resuming from the one before" in caplog.text
        assert resumed.training.resumed_from == 8
        assert weights(resumed) == weights(whole)
