"""Two processes under torchrun: all draw the same, and each learns what the others saw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from processes import DEADLINE, torchrun

SCRIPT = """
import json, sys
import numpy as np
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from datasets import DatasetDict
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
import opera
from opera.training.pruning import PairPruning
from own_scripts import arguments, open_model, pairs_of, trainer_of

data, model_folder, out = sys.argv[2], sys.argv[3], Path(sys.argv[4])
whole = pairs_of(opera.load_data(data))
several = DatasetDict({"a": whole.select(range(30)), "b": whole.select(range(18, 48))})


def train(name, dataset, stop=None, resume=None, **changed):
    args = arguments(
        out / name, ddp_backend="gloo", per_device_train_batch_size=6, num_train_epochs=3, save_strategy="steps",
        save_steps=stop or 4, **changed,
    )
    model = open_model(model_folder)
    pruning = PairPruning(model, dataset, "dp", args=args)
    across = name.startswith("across")
    loss = MultipleNegativesRankingLoss(model, gather_across_devices=across)
    trainer = trainer_of(pruning, args, dataset, loss)
    if stop:
        saved = pruning.callback.on_save

        def stopping(args, state, control, **kwargs):
            saved(args, state, control, **kwargs)
            control.should_training_stop = True

        pruning.callback.on_save = stopping
    trainer.train(resume_from_checkpoint=resume)
    drawn = [np.concatenate(part.sampler.drawn)[: part.sampler.trained_steps * 6].tolist() for part in pruning._sets]
    scores = [part.sampler.method.scores.similarity.tolist() for part in pruning._sets]
    weights = float(sum(p.detach().double().abs().sum() for p in trainer.model.parameters()))
    return {"steps": trainer.state.global_step, "drawn": drawn, "scores": scores, "weights": weights}


found = {
    "one": train("one", whole),
    "across": train("across", whole, max_steps=3),
    "several": train("several", several, multi_dataset_batch_sampler="round_robin"),
    "cut": train("cut", several, stop=5, multi_dataset_batch_sampler="round_robin"),
    "resumed": train("cut", several, resume=True, multi_dataset_batch_sampler="round_robin"),
}
Path(out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes(beir: Path, static_model: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    tests = str(Path(__file__).parents[2])
    log = tmp_path / "log"
    child = torchrun([str(script), tests, str(beir), str(static_model), str(tmp_path)], log)
    assert child.wait(DEADLINE) == 0, log.read_text()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["one"]["steps"] == 12  # 4 per epoch, as two processes with 6 rows of 48 each take
    assert len(first["one"]["drawn"][0]) == 12 * 2 * 6
    assert (
        first["several"]["steps"] == 12
    )  # 2 batches of each data set per epoch and process: the trainer drops the rest
    assert first["resumed"] == first["several"]
    assert first["cut"]["steps"] == 5
    assert len(set(np.round(first["one"]["scores"][0], 3))) > 5
    assert first["across"]["weights"] != pytest.approx(first["one"]["weights"])
