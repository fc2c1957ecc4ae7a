"""``opera.PairPruning`` under sentence-transformers' own trainer: each loss and each method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

import opera
from opera.methods import METHODS
from opera.training.pruning import PairPruning
from own_scripts import LOSSES, arguments, open_model, pairs_of, trainer_of


@pytest.fixture(scope="module")
def dataset(beir: Path) -> Dataset:
    return pairs_of(opera.load_data(str(beir)))


@pytest.mark.parametrize("method", [*METHODS])
@pytest.mark.parametrize("kind", [*LOSSES])
def test_what_is_observed_is_what_was_drawn(
    kind: str, method: str, dataset: Dataset, bert_model: Path, tmp_path: Path
) -> None:
    """At the first step the model is untrained: similarity and loss of each pair can be computed from its texts."""
    model, guide = open_model(bert_model), open_model(bert_model)
    args = arguments(tmp_path, max_steps=6)
    if method == "infobatch" and "gist" in kind:
        with pytest.raises(opera.SettingError, match=r"infobatch: weighs each pair's loss, and .* cannot"):
            trainer_of(PairPruning(model, dataset, method, args=args), args, dataset, LOSSES[kind](model, guide))
        return
    queries, documents = (open_model(bert_model).encode(dataset[column]) for column in dataset.column_names)
    pruning = PairPruning(model, dataset, method, args=args)
    trainer = trainer_of(pruning, args, dataset, LOSSES[kind](model, guide))
    seen = []
    plain = pruning._sets[0].train

    def train(step: int, pair_ids: np.ndarray, similarity: np.ndarray, loss: np.ndarray) -> None:
        seen.append((pruning._sets[0].rows.rows(pair_ids), similarity, loss))
        plain(step, pair_ids, similarity, loss)

    pruning._sets[0].train = train  # type: ignore[method-assign]
    trainer.train()
    assert len(seen) == 6
    rows, similarity, loss = seen[0]
    cosines = torch.nn.functional.cosine_similarity(
        torch.from_numpy(queries[rows])[:, None], torch.from_numpy(documents[rows])[None], dim=2
    )
    np.testing.assert_allclose(similarity, cosines.diagonal(), atol=1e-6)
    expected = torch.nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(rows)), reduction="none")
    np.testing.assert_allclose(loss, expected, atol=1e-4)
    assert trainer.state.log_history[0]["coverage"] == len(set(rows)) / len(dataset)
    if method == "dp":
        assert [round(row["alpha"], 3) for row in trainer.state.log_history[:-1]] == [
            round(5 - 3 * (1 + np.cos(np.pi * step / 6)) / 2, 3) for step in range(6)
        ]
