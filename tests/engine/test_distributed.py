"""Several processes that train together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opera.runs.folder import Run
from processes import DEADLINE, launched, start, torchrun
from small_runs import train_command

GRADIENTS = """
import os, sys
import numpy as np, torch
import torch.distributed as dist
from opera.data import load_data
from opera.methods import METHODS, Plan
from opera.training_set.negatives import RandomNegatives
from distinct import known_of, pool_of
from opera.retrieval.models import load_model
from opera.engine.pruning import Pruning
from opera.engine.sampler import PairSampler, SetSampler
from opera.engine.dataset import text_dataset
from opera.engine.loss import InfoNCELoss

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
folder, model_folder, out = sys.argv[1:]
data, model = load_data(folder), load_model(model_folder, "cpu").eval().double()
training = data.training_split()
pairs = training.pairs()
method = METHODS["ft"](pairs, Plan(0, 1, 12), None)
sets = [SetSampler(method, RandomNegatives(pool_of(len(data.corpus))))]
sampler = PairSampler(sets, pairs, method.plan, 12 // world, n_negatives=2, rank=rank, world_size=world)
pruning, seen = Pruning(), []
pruning.samplers = [sampler]
observe = sampler.observe
sampler.observe = lambda *values: seen.append(values) or observe(*values)
rows = next(iter(sampler))
items = text_dataset(data, training.query_rows, 2, "title_text").__getitems__(rows)
columns = [name for name in items[0] if name != "label"]
features = [model.preprocess([item[name] for item in items]) for name in columns]
labels = torch.tensor([item["label"] for item in items])
known, cache = known_of(pairs), int(os.environ.get("CACHE", 0)) or None
loss = pruning.watch(InfoNCELoss(model, 0.05, known, gradient_cache=cache, sizes=(8,)))
value = loss(features, labels)
value.backward()
parts = [value.detach().reshape(1), *(p.grad.flatten() for p in model.parameters() if p.grad is not None)]
flat = torch.cat(parts)
if world > 1:  # what DDP does: the mean over the processes
    dist.all_reduce(flat)
    flat /= world
if rank == 0:
    pairs, similarity, losses, _ = (np.concatenate(parts) for parts in zip(*seen))
    np.savez(out, gradient=flat.numpy(), pairs=pairs, similarity=similarity, loss=losses)
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("processes", "texts"), [(2, 4), (3, 0)])
def test_gradients_of_several_processes_are_those_of_one(
    processes: int, texts: int, beir: Path, bert_model: Path, tmp_path: Path
) -> None:
    """The loss, its gradient in every parameter, and what is observed: with the mask and two negatives a pair.

    The several have a gradient cache, or none; the one has none.

    In float64, where other orders of the sums change them by less than 1e-12; observed values are rounded to float32.
    """
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    found = []
    for world in (1, processes):
        out = tmp_path / f"{world}.npz"
        arguments = [str(script), str(beir), str(bert_model), str(out)]
        shared = {"WORLD_SIZE": str(world), "MEETING": str(tmp_path / f"meeting{world}")}
        shared["CACHE"] = str(texts if world > 1 else 0)
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


@pytest.mark.slow
def test_a_dead_process_ends_the_run_with_a_message(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, sys\n"
        "from opera.engine.callbacks import Trace\n"
        "end = Trace.on_step_end\n"
        "def dies(self, args, state, control, **kwargs):\n"
        "    end(self, args, state, control, **kwargs)\n"
        "    if state.global_step == 5 and os.environ['RANK'] == '1':\n"
        "        os._exit(7)\n"
        "Trace.on_step_end = dies\n"
        "from opera.cli import main\n"
        "main()\n"
    )
    arguments = train_command(beir, bert_model, tmp_path / "run", "--steps", "24")
    process = torchrun([str(script), *arguments], tmp_path / "log")
    assert process.wait(DEADLINE) != 0
    said = (tmp_path / "log").read_text()
    assert "exitcode" in said
    assert "another process ended; see its message" in said


SPOILT = """
import os
from unittest.mock import patch
import torch
from opera.engine.callbacks import Stopper
from opera.engine.loss import InfoNCELoss

on_step_end = Stopper.on_step_end


def without_objects(self, *arguments, **more):
    with patch("torch.distributed.all_gather_object", side_effect=AssertionError):  # pickles, in every step
        on_step_end(self, *arguments, **more)


Stopper.on_step_end = without_objects

pair_losses, calls = InfoNCELoss.pair_losses, []


def spoilt(self, *arguments):
    calls.append(arguments)
    losses = pair_losses(self, *arguments)
    return losses * torch.nan if os.environ["RANK"] == "1" and len(calls) == 2 else losses


InfoNCELoss.pair_losses = spoilt
from opera.cli import main

main()
"""


def test_a_loss_that_is_no_number_in_one_process_ends_all_and_its_pairs_are_written(
    beir: Path, static_model: Path, tmp_path: Path
) -> None:
    script, out = tmp_path / "spoilt.py", tmp_path / "run"
    script.write_text(SPOILT)
    command = [str(script), *train_command(beir, static_model, out, "--steps", "4", "--set", "guard=false")]
    for child in launched(command, tmp_path / "log"):
        assert child.wait() == 1, child.log.read_text()
        assert "step 2: the loss of 8 of 16 pairs, such as" in child.log.read_text()
    written = json.loads((out / "not_finite.json").read_text())
    assert [row["finite"] for row in written["pairs"]] == [True] * 8 + [False] * 8


@pytest.mark.parametrize("processes", [1, 2])
def test_an_adapter_of_queries_trains_in_several_processes(
    processes: int, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    """Its one parameter takes part in one of three forward passes per step."""
    options = ["--method", "ft", "--adapter", "query", "--steps", "3", "--set", "guard=false"]
    command = ["-m", "opera", *train_command(beir, static_model, tmp_path / "run", *options)]
    for child in launched(command, tmp_path / "log", processes):
        assert child.wait() == 0, child.log.read_text()
    run = Run.open(tmp_path / "run")
    assert (run.record.processes, run.steps) == (processes, 3)
