"""A training that breaks off and is resumed ends as if it had not: the same draws, the same bytes of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import opera
from opera.training.pruning import PairPruning
from own_scripts import arguments, open_model, pairs_of, trainer_of


def train(dataset: Any, model: Path, out: Path, stop: int | None = None, resume: bool = False, **changed: Any) -> Any:
    """Train; ``stop`` breaks off when that step's checkpoint is saved."""
    args = arguments(out, **{"save_strategy": "steps", "save_steps": 5, **changed})
    own = open_model(model)
    pruning = PairPruning(own, dataset, "dp", args=args)
    trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(own))
    if stop is not None:
        save = pruning.callback.on_save

        def broken(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            save(args, state, control, **kwargs)
            if state.global_step == stop:
                raise KeyboardInterrupt

        pruning.callback.on_save = broken  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    else:
        trainer.train(resume_from_checkpoint=True if resume else None)
    return pruning, trainer


@pytest.fixture(scope="module")
def datasets(beir: Path) -> dict[str, Any]:
    whole = pairs_of(opera.load_data(str(beir)))
    return {
        "one": whole,
        "several": DatasetDict({"a": whole.select(range(28)), "b/b": whole.select(range(24, 48))}),
    }


CASES = {
    "in the second epoch": ("one", {"num_train_epochs": 3}),
    "after an epoch": ("one", {"num_train_epochs": 3, "save_steps": 6}),
    "accumulated": ("one", {"num_train_epochs": 5, "gradient_accumulation_steps": 4, "save_steps": 3}),
    "without skipping": ("one", {"num_train_epochs": 3, "ignore_data_skip": True}),
    "in proportion": ("several", {"num_train_epochs": 3, "per_device_train_batch_size": 6}),
    "in turns": (
        "several",
        {"num_train_epochs": 3, "per_device_train_batch_size": 6, "multi_dataset_batch_sampler": "round_robin"},
    ),
}


@pytest.mark.parametrize("case", [*CASES])
def test_a_resumed_training_ends_the_same(
    case: str, datasets: dict[str, Any], bert_model: Path, static_model: Path, tmp_path: Path
) -> None:
    name, changed = CASES[case]
    model = bert_model if case == "in the second epoch" else static_model
    dataset = datasets[name]
    stop = changed.get("save_steps", 5) * (1 if case == "after an epoch" else 2)
    whole, trainer = train(dataset, model, tmp_path / "whole", **changed)
    train(dataset, model, tmp_path / "cut", stop=stop, **changed)
    resumed, again = train(dataset, model, tmp_path / "cut", resume=True, **changed)
    assert again.state.global_step == trainer.state.global_step > stop
    for first, second in zip(whole._sets, resumed._sets, strict=True):
        trained = first.sampler.trained_steps * first.sampler.batch_size
        assert first.sampler.trained_steps == second.sampler.trained_steps
        draws = [np.concatenate(part.sampler.drawn)[:trained] for part in (first, second)]
        np.testing.assert_array_equal(*draws)
    weights = zip(trainer.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    assert all((one == other).all() for one, other in weights)
    assert logged(trainer) == logged(again)


def logged(trainer: SentenceTransformerTrainer) -> list[dict[str, float]]:
    """What was logged at each step, but for the epoch, which starts again where nothing is skipped."""
    return [{name: row[name] for name in row.keys() - {"epoch"}} for row in trainer.state.log_history[:-1]]
