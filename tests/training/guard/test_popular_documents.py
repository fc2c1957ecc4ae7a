"""Documents that most queries name, and a test of new ones: what the second training brings back may ruin the model.

Every query asks in the same words, which stand in no document. Pairs of the popular documents teach these words to mean
them, and then they are found first, whatever a query asks for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import opera
from opera.config.recipe import make_recipe
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.runs.folder import Run
from opera.training.guard import choice
from opera.training_set.prepare import load_and_check
from small_runs import assert_same_run
from tiny_world import static_model_of

SETTINGS: dict[str, Any] = {"method": "ft", "max_steps": 60, "learning_rate": 0.05, "temperature": 0.07}
ASK, POPULAR = [f"ask{n}" for n in range(6)], 5


def world(own: int = 14, share: float = 1.0, first: int = 100) -> RetrievalData:
    """100 train and 30 test queries with ``own`` documents each; ``share`` of the ``first`` name popular ones too."""
    rng = generator(0, "popular")
    corpus = {f"p{n}": f"hub hub h{n}" for n in range(POPULAR)}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {"train": {}, "test": {}}
    for number in range(130):
        split, topic = "train" if number < 100 else "test", f"t{2 * number} t{2 * number + 1}"
        queries[f"q{number}"] = " ".join([topic, *ASK])
        documents = {
            f"q{number}d{n}": " ".join([topic, *(f"c{i}" for i in rng.integers(20, size=2))]) for n in range(own)
        }
        corpus |= documents
        popular = [f"p{n}" for n in range(POPULAR)] if number < first and rng.random() < share else []
        qrels[split][f"q{number}"] = dict.fromkeys([*documents, *popular], 1)
    return RetrievalData.from_dicts("popular", corpus=corpus, queries=queries, qrels=qrels)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [
        "[UNK]",
        *(f"t{n}" for n in range(260)),
        *(f"c{n}" for n in range(20)),
        *ASK,
        "hub",
        *(f"h{n}" for n in range(POPULAR)),
    ]
    return static_model_of(tmp_path_factory.mktemp("popular") / "model", words, 48)


def ndcg(run: Run, when: str) -> float:
    return run.measures[when]["nDCG@10"]


def test_popular_documents_that_left_train_do_not_come_back(model: Path, tmp_path: Path) -> None:
    """26% of the pairs are popular documents'. With all of them in a second training test fell from .78 to .5."""
    run = opera.adapt(world(), model=model, out=tmp_path / "run", **SETTINGS)
    guard = run.record.guard
    assert guard is not None
    assert (guard.verdict, guard.refit, guard.second) == ("better", False, None)
    assert ndcg(run, "after") > ndcg(run, "before") + 0.1
    asked = opera.adapt(world(), model=model, out=tmp_path / "asked", refit=True, **SETTINGS)
    assert ndcg(asked, "after") > ndcg(run, "before") + 0.1
    pairs = asked.pairs()
    named = sum(document.startswith("p") for document in pairs["doc_id"].to_pylist())
    assert 0 < named <= POPULAR * guard.dev_queries  # those of the dev queries alone


def test_popular_documents_that_cannot_leave_train_are_seen_on_dev(model: Path, tmp_path: Path) -> None:
    """With a third of the pairs they stay, and dev queries are judged by their own documents beside them."""
    run = opera.adapt(world(own=10), model=model, out=tmp_path / "run", **SETTINGS)
    assert ndcg(run, "after") > ndcg(run, "before")
    guard = run.record.guard
    assert guard is not None
    assert (guard.dev_queries, guard.refit) == (25, False)


def test_popular_documents_of_half_the_queries(model: Path, tmp_path: Path) -> None:
    """Dev has queries without them, and so has what comes back."""
    run = opera.adapt(world(share=0.5), model=model, out=tmp_path / "run", **SETTINGS)
    assert run.record.guard is not None
    assert run.record.guard.refit
    assert ndcg(run, "after") > ndcg(run, "before") + 0.1


def test_popular_documents_of_few_queries_come_to_dev_and_stay_there(model: Path) -> None:
    """They fit into dev as one component, so nothing is held out; a second training would be the first to see them."""
    came = set()
    for seed in range(6):
        prepared = load_and_check(world(own=4, first=24), str(model), make_recipe({**SETTINGS, "seed": seed}))
        assert prepared.data.drawn.held_out is None
        in_dev = "p0" in prepared.data.drawn.corpus.ids(prepared.data.drawn.split("dev").doc_rows)
        assert prepared.refits is not in_dev
        came.add(in_dev)
    assert came == {True, False}


def test_a_second_training_that_fails_is_not_handed_over(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, first = (
        world(share=0),
        opera.adapt(world(share=0), model=model, out=tmp_path / "first", refit=False, **SETTINGS),
    )
    fit = choice.fit

    def spoilt(session: Any, data: Any, run: Any, phase: str, what: str) -> Any:
        done = fit(session, data, run, phase, what)
        if phase == "train":
            with torch.no_grad():
                weights = next(session.prepared.model.trained.parameters())
                weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(choice, "fit", spoilt)
        run = opera.adapt(data, model=model, out=tmp_path / "run", **SETTINGS)
    guard = run.record.guard
    assert guard is not None
    assert guard.second is not None
    assert (guard.second.kept, guard.refit) == (False, False)
    assert guard.second.second < guard.second.trial - guard.second.error
    assert run.record.method == first.record.method
    assert not (run.path / "checkpoints").exists()
    assert_same_run(run, first)
    assert run.measures == first.measures
