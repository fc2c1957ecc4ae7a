"""Whatever the method, the loss, the number of processes and the interruptions, what a training promises holds.

- The texts that the loss gets are those of the pairs that are observed.
- Draws and weights are those of the method, fed with what was observed up to the lag.
- A resumed training ends with the draws and the bytes of one that nobody interrupted.
- Two processes draw the same, and train like one where they compare their documents.
- Afterwards the loss trains by itself again.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import DatasetDict
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformerTrainer

import opera
from opera.methods import METHODS
from opera.training.distinct_batches import DistinctSampler
from opera.training.sampler import Observations, Sampler
from opera.training.weighable_losses import chain_of, weighable, weighing
from own_scripts import (
    LOSSES,
    WEIGHABLE,
    arguments,
    draws_of,
    make_loss,
    open_model,
    train_script,
    trainer_of,
    weights_of,
)
from processes import launched
from small_runs import SMALL, assert_same_run, interrupted_at


@pytest.fixture(scope="module")
def several(dataset) -> DatasetDict:
    return DatasetDict({"a": dataset.select(range(28)), "b": dataset.select(range(18, 48))})


@pytest.fixture
def observed(monkeypatch) -> list[Observations]:
    """What the sampler gets of each batch."""
    seen: list[Observations] = []
    observe = Sampler.observe

    def recorded(self: Sampler, step: int, observations: Observations) -> None:
        seen.append(observations)
        observe(self, step, observations)

    monkeypatch.setattr(Sampler, "observe", recorded)
    return seen


STATES = ("ft", "sp", "infobatch", "dp", "sp+dp", "denoise")
"""Methods that keep different things; rp and sp+cbs keep what sp keeps, and tests/methods resume them."""
SLOW = pytest.mark.slow
OFTEN = ("dp", "denoise")
"""The methods whose interruptions the default tests try; the slow tests try all of ``STATES``."""


def by_method(*values: Any) -> list[Any]:
    """A row of each method of ``STATES`` with these values."""
    return [pytest.param(method, *values, marks=[] if method in OFTEN else SLOW) for method in STATES]


SCRIPTS = [(method, "mnrl", False) for method in STATES] + [
    pytest.param(method, kind, sizes, marks=SLOW if sizes and kind != "mnrl" else [])
    for method in ("dp", "infobatch")
    for kind in LOSSES
    for sizes in (False, True)
    if (kind, sizes) != ("mnrl", False) and (method == "dp" or kind in WEIGHABLE)
]


@pytest.mark.parametrize(("method", "kind", "sizes"), SCRIPTS)
def test_a_script_trains_on_the_draws_of_the_method_and_observes_them(
    method, kind, sizes, observed, dataset, static_model, bert_model, tmp_path
):
    folder, steps = (static_model, 12) if kind == "mnrl" and not sizes else (bert_model, 3)
    model, args = open_model(folder), arguments(tmp_path, max_steps=steps)
    pruning = opera.PairPruning(model, dataset, method, args=args)
    loss = make_loss(kind, model, open_model(bert_model), sizes)
    attributes, calls, values = [set(vars(part)) for part in chain_of(loss)], list[Any](), list[float]()
    loss.register_forward_hook(lambda _, inputs, value: (calls.append(inputs[0]), values.append(value.item()))[0])
    trainer = trainer_of(pruning, args, loss)
    queries, documents = (torch.from_numpy(model.encode(dataset[name])) for name in dataset.column_names)
    before = weights_of(model)
    trainer.train()
    assert weights_of(model) != before
    (data_set_batches,) = pruning.batches
    data_set, sampler = data_set_batches.data_set, data_set_batches.pair_sampler
    assert len(calls) == len(observed) == sampler.trained_steps == steps

    for (ids, *_), features in zip(observed, calls, strict=True):
        rows = dataset.select(data_set.rows(ids))
        for name, column in zip(dataset.column_names, features, strict=True):
            assert torch.equal(column["input_ids"], model.preprocess(rows[name])["input_ids"])
    ids, similarity, losses, _ = observed[0]  # of the base model
    rows = data_set.rows(ids)
    cosines = torch.nn.functional.cosine_similarity(queries[rows][:, None], documents[rows], dim=2)
    masks = kind in WEIGHABLE
    texts, known = dataset.select(rows), set(zip(*(dataset[name] for name in dataset.column_names), strict=True))
    is_known = [[(query, text) in known for text in texts["answer"]] for query in texts["question"]]
    excluded = torch.tensor(is_known) & ~torch.eye(len(rows), dtype=torch.bool) & masks
    logits = (cosines / 0.05).masked_fill(excluded, -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(len(rows)), reduction="none")
    np.testing.assert_allclose(similarity, cosines.diagonal(), atol=1e-5)
    np.testing.assert_allclose(losses, expected, atol=1e-3)

    weights = list[float]()
    again = METHODS[method](data_set.pairs, sampler.plan, pruning.method_settings, pruning._scores(data_set_batches))
    batches = DistinctSampler(again, data_set.documents[:, : 0 if masks else None], data_set.known)
    for step in range(steps):
        if step >= sampler.lag:
            ids, similarity, losses, p = observed[step - sampler.lag]
            again.visits.record(step - sampler.lag, ids, p)
            again.observe(ids, similarity, losses)
        draw = batches.next_pairs(len(observed[step][0]))
        assert draw.pair_ids.tolist() == observed[step][0].tolist()
        if kind == "mnrl" and not sizes:
            assert values[step] == pytest.approx((observed[step][2] * draw.weights).mean(), rel=1e-4)
        weights += draw.weights.tolist()
    assert (max(weights) > 1) == (method == "infobatch" and steps == 12)

    assert pruning.watch(trainer.loss).loss is loss
    plain = arguments(tmp_path, max_steps=1)
    for usable in (loss, trainer.loss):
        SentenceTransformerTrainer(model, plain, train_dataset=dataset, loss=usable, callbacks=[]).train()
    assert [set(vars(part)) for part in chain_of(loss)] == attributes
    with pytest.raises(opera.TrainingError, match=r"^PairPruning: dataset is read again, by a second training"):
        trainer.train()


@pytest.mark.parametrize("kind", WEIGHABLE)
@pytest.mark.parametrize("sizes", [False, True])
def test_weights_multiply_the_loss_of_each_pair(kind, sizes, dataset, bert_model):
    """The gradient of a batch is that of the mean of loss times weight."""
    model, factors = open_model(bert_model).train(), torch.linspace(0.5, 3, 8)
    features = [model.preprocess(dataset[:8][column]) for column in dataset.column_names]
    loss = make_loss(kind, model, model, sizes)
    with weighing(weighable(loss), factors):
        value = loss([dict(part) for part in features], None)
    value.backward()
    gradient = torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])
    model.zero_grad()
    queries, documents = (model(dict(part))["sentence_embedding"] for part in features)
    total = torch.zeros(())
    for size in [32, 8, 4] if sizes else [32]:
        short = [torch.nn.functional.normalize(part[:, :size]) for part in (queries, documents)]
        logits = short[0] @ short[1].T * 20
        total = total + (torch.nn.functional.cross_entropy(logits, torch.arange(8), reduction="none") * factors).mean()
    total.backward()
    expected = torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])
    assert value.item() == pytest.approx(total.item(), rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


SIX = {"num_train_epochs": 2, "per_device_train_batch_size": 6}
RESUMED = [
    *by_method("static", {"num_train_epochs": 2}),
    ("dp", "bert", {"num_train_epochs": 1}),
    ("dp", "static", {"num_train_epochs": 3, "gradient_accumulation_steps": 4}),
    ("dp", "static", {"num_train_epochs": 2, "ignore_data_skip": True}),
    ("dp", "static", {"num_train_epochs": 2, "save_steps": 6}),  # after an epoch
    ("dp", "several", SIX),
    ("denoise", "several", {**SIX, "multi_dataset_batch_sampler": "round_robin"}),
]


@pytest.mark.parametrize(("method", "kind", "changed"), RESUMED)
def test_a_resumed_script_ends_with_the_same_bytes(
    method, kind, changed, dataset, several, static_model, bert_model, tmp_path
):
    """The same draws, the same bytes of weights, the same log."""
    data, model = several if kind == "several" else dataset, bert_model if kind == "bert" else static_model
    stop = changed.get("save_steps", 4)
    uninterrupted, trainer = train_script(
        data, model, tmp_path / "uninterrupted", method, **{"save_steps": stop, **changed}
    )
    train_script(data, model, tmp_path / "cut", method, stop=stop, **changed)
    resumed, again = train_script(data, model, tmp_path / "cut", method, resume=True, **{"save_steps": stop, **changed})
    assert again.state.global_step == trainer.state.global_step > stop
    assert draws_of(uninterrupted) == draws_of(resumed)
    assert weights_of(trainer.model) == weights_of(again.model)
    # the epoch starts again where nothing is skipped
    logs = [[{**row, "epoch": 0} for row in part.state.log_history[:-1]] for part in (trainer, again)]
    assert logs[0] == logs[1]


RUNS = [
    *by_method("static", {}),
    ("dp", "bert", {"update_interval": 7, "precision": "fp32", "gradient_accumulation_steps": 2}),
    pytest.param(
        "dp", "bert", {"lora": "r=4,dropout=0.1", "learning_rate": 0.03, "guard": True, "refit": True}, marks=SLOW
    ),
    ("dp", "static", {"update_interval": "epoch"}),
    ("dp", "static", {"adapter": "query", "learning_rate": 0.02}),
    ("dp", "several", {"mix": "equal", "negatives": "hard", "range": "1:9"}),
    pytest.param("infobatch", "several", {}, marks=SLOW),
    ("denoise", "several", {"one_set_per_step": True}),
]


@pytest.mark.parametrize(("method", "kind", "more"), RUNS)
def test_a_resumed_run_ends_with_the_same_bytes(method, kind, more, beir, second, static_model, bert_model, tmp_path):
    settings = {**SMALL, "method": method, "guard": False, **more}
    settings |= {"model": bert_model if kind == "bert" else static_model}
    settings |= {"also": [second] if kind == "several" else []}
    uninterrupted = opera.adapt(beir, out=tmp_path / "uninterrupted", **settings)
    with interrupted_at(6):
        opera.adapt(beir, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, out=tmp_path / "cut", resume=True, **settings)
    assert more.get("refit") or resumed.training.resumed_from == 4
    assert_same_run(resumed, uninterrupted)
    assert (resumed.path / "draws.parquet").read_bytes() == (uninterrupted.path / "draws.parquet").read_bytes()
    assert resumed.measures == uninterrupted.measures


SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from datasets import DatasetDict
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss as Loss
import opera
from own_scripts import draws_of, pairs_of, train_script

data, model, out = sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
rows = pairs_of(opera.load_data(data))
sets = DatasetDict({"a": rows.select(range(30)), "b": rows.select(range(18, 48))})


def train(name, dataset, method="dp", across=False, **more):
    more = {"per_device_train_batch_size": 6, "num_train_epochs": 3, "ddp_backend": "gloo", **more}
    pruning, trainer = train_script(
        dataset, model, out / name, method, loss=lambda model: Loss(model, gather_across_devices=across), **more
    )
    weights = [float(abs(part.detach().double()).sum()) for part in trainer.model.parameters()]
    return {"steps": trainer.state.global_step, "drawn": draws_of(pruning), "weights": weights}


turns = {"multi_dataset_batch_sampler": "round_robin"}
results = {
    "one": train("one", rows),
    "across": train("across", rows, across=True, max_steps=3),
    "weighed": train("weighed", rows, "infobatch", across=True),
    "several": train("several", sets, **turns),
    "cut": train("cut", sets, stop=5, **turns),
    "resumed": train("cut", sets, resume=True, **turns),
}
Path(out / f"{dist.get_rank()}.json").write_text(json.dumps(results))
dist.destroy_process_group()
"""


def test_a_script_draws_the_same_in_two_processes(beir, static_model, tmp_path):
    script, tests = tmp_path / "script.py", str(Path(__file__).parents[1])
    script.write_text(SCRIPT)
    for child in launched([str(script), tests, str(beir), str(static_model), str(tmp_path)], tmp_path / "log"):
        assert child.wait() == 0, child.log.read_text()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["one"]["steps"] == 12  # 4 per epoch, as two processes with 6 rows of 48 each take
    assert len(first["one"]["drawn"][0]) == 12 * 2 * 6
    assert first["several"]["steps"] == 12  # 2 batches of each data set per epoch and process; the rest is dropped
    assert first["cut"]["steps"] == 5
    assert first["resumed"] == first["several"]
    assert first["across"]["weights"] != pytest.approx(first["one"]["weights"])


IN_FLOAT64 = """
import sys
import opera
from transformers import TrainerCallback


class InFloat64(TrainerCallback):
    def on_init_end(self, args, state, control, model=None, **kwargs):
        model.double()


batch, cache, data, model, out = sys.argv[1:]
settings = dict(
    gradient_cache=int(cache) or None, matryoshka="8", dropout=0,
    max_steps=6, eval_steps=3, save_steps=3, callbacks=[InFloat64()],
    per_device_train_batch_size=int(batch), gradient_accumulation_steps=2, train_group_size=3,
    temperature=0.1, precision="fp32", optim="sgd", max_grad_norm=0.0, learning_rate=0.03,  # shows each wrong gradient
)
for method in ("dp", "infobatch"):
    opera.adapt(data, model=model, out=f"{out}/{method}", method=method, guard=method == "dp", **settings)
"""


def test_a_run_is_the_same_in_two_processes(beir, bert_model, tmp_path):
    """The draws, losses and weights of one process, and of a gradient cache those without it.

    Two processes add the same numbers in another order. In float64 that changes a sum of n ≤ 1000 terms of size 10 by
    less than n·2⁻⁵³·10 = 1e-12 per step. To reach 1e-9, 6 steps would have to amplify it a thousand times, while a
    wrong scale or a missing negative moves weights by 1e-3. Observed losses are rounded to float32, so their means may
    differ by one last bit. A draw differs only where a loss lies within that bit of the next one or of the mean; the
    seeds are fixed, so in float64 this happens on every machine or on none.
    """
    script = tmp_path / "in_float64.py"
    script.write_text(IN_FLOAT64)
    for processes, batch, cache in ((1, "8", "0"), (2, "4", "3")):
        arguments = [str(script), batch, cache, str(beir), str(bert_model), str(tmp_path / str(processes))]
        for child in launched(arguments, tmp_path / f"log{processes}", processes):
            assert child.wait() == 0, child.log.read_text()
    for method in ("dp", "infobatch"):
        first, second = (opera.Run.open(tmp_path / name / method) for name in ("1", "2"))
        assert (first.record.processes, second.record.processes) == (1, 2)
        assert first.pairs()["times_drawn"] == second.pairs()["times_drawn"]
        assert first.trace()["learning_rate"] == second.trace()["learning_rate"]
        assert first.measures["base"] == second.measures["base"], "shared work has the same bytes"
        evaluations = [dict(run.training.evaluations) for run in (first, second)]
        assert evaluations[0] == pytest.approx(evaluations[1], abs=1e-9)
        assert list(evaluations[0]) == [3, 6]
        losses = [run.trace()["loss"].to_numpy() for run in (first, second)]
        np.testing.assert_allclose(*losses, rtol=2.0**-23, atol=0)
        tables = [load_file(next(run.model_path.rglob("model.safetensors"))) for run in (first, second)]
        for name, table in tables[0].items():
            assert table.dtype == np.float64
            np.testing.assert_allclose(table, tables[1][name], rtol=0, atol=1e-9)
