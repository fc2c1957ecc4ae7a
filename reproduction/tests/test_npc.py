"""The loss of reproduction/studies/npc.py, which detects noisy pairs while it trains: an extension in use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import opera
from documents import ROOT
from opera.config.optimisation import LOSSES
from opera_paper.noise import add_wrong_pairs
from small_runs import FAST


@pytest.fixture(scope="module")
def npc() -> Iterator[ModuleType]:
    """The module of the study; its loss is unknown again afterwards."""
    specification = spec_from_file_location("npc", ROOT / "reproduction" / "studies" / "npc.py")
    assert specification is not None
    assert specification.loader is not None
    sys.modules["npc"] = module = module_from_spec(specification)
    specification.loader.exec_module(module)
    yield module
    del sys.modules["npc"], LOSSES["npc"]


def test_perplexity_is_the_loss_against_random_documents(npc: ModuleType) -> None:
    positive, negative = np.array([0.9, 0.1]), np.array([[0.1, -np.inf, 0.3]])
    found = npc.perplexities(positive, negative, np.array([0, 0]), temperature=0.5)
    terms = np.exp(np.array([0.1, 0.3]) / 0.5).sum()
    expected = [-np.log(np.exp(p / 0.5) / (np.exp(p / 0.5) + terms)) for p in positive]
    np.testing.assert_allclose(found, expected)


def test_wrong_pairs_are_detected_while_training(
    npc: ModuleType, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    data, _ = add_wrong_pairs(opera.load_data(beir), "random", 0.3, 0, splits=["train"])
    clean = {(q, d) for q, docs in judged(opera.load_data(beir)).items() for d in docs}
    npc.NoisyPairLoss.trainings.clear()
    settings = {**FAST, "learning_rate": 0.05, "method": "ft", "loss": "npc", "guard": False, "max_steps": 40}
    run = opera.adapt(data, model=static_model, out=tmp_path / "run", **settings)
    (training,) = npc.NoisyPairLoss.trainings
    pairs = run.pairs().to_pandas()
    wrong = np.array([(q, d) not in clean for q, d in zip(pairs.query_id, pairs.doc_id, strict=True)])
    noisy = training.detections[-1].noisy
    # 30% of all pairs are wrong; a random list of this length would reach 45% with p < .001
    assert wrong[noisy].mean() > 0.45


def judged(data: opera.RetrievalData) -> dict[str, set[str]]:
    train = data.split("train").relevant()
    queries = data.queries.ids(train.query_rows[train.query_index])
    judgements: dict[str, set[str]] = {}
    for query, document in zip(queries, data.corpus.ids(train.doc_rows), strict=True):
        judgements.setdefault(query, set()).add(document)
    return judgements
