"""Margins and the reranker's veto, against sentence-transformers' own miner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

import opera
from opera.config.negatives import MiningSettings
from opera.core.errors import SettingError
from opera.data import load_data
from opera.data.pairs import TrainingPairs
from opera.retrieval.encoder import open_encoder
from opera.training_set.documents import KnownPositives
from opera.training_set.mining import Miner, highest_allowed, lowest_positive

PAIRS = TrainingPairs.from_arrays(np.array([0, 0, 1, 2]), np.array([0, 1, 2, 3]))
COSINES = np.array([0.8, 0.5, -0.4, 0.9], dtype=np.float32)


def test_margins_are_measured_from_the_worst_positive() -> None:
    worst = lowest_positive(PAIRS, COSINES)
    assert worst.tolist() == pytest.approx([0.5, -0.4, 0.9])
    for margins, limits in (
        ({"relative_margin": 0.05}, [0.475, -0.42, 0.855]),
        ({"relative_margin": 0}, [0.5, -0.4, 0.9]),
        ({"absolute_margin": 0.1}, [0.4, -0.5, 0.8]),
        ({"max_score": 0.5}, [0.5, 0.5, 0.5]),
        ({"absolute_margin": 0.01, "max_score": 0.45}, [0.45, -0.41, 0.45]),
    ):
        assert highest_allowed(worst, MiningSettings(**margins))[:, 0].tolist() == pytest.approx(limits)


def test_the_reranker_sees_what_the_margins_left(beir: Path, static_model: Path) -> None:
    data, asked = load_data(beir), []
    train = data.training_split()
    pairs = train.pairs()

    class ByRow:
        """A document's score is its row."""

        def score_pairs(self, data: object, queries: np.ndarray, docs: np.ndarray, text: str) -> np.ndarray:
            asked.append(set(zip(queries.tolist(), docs.tolist(), strict=True)))
            return np.asarray(docs, dtype=np.float32)

    encoder, settings = open_encoder(str(static_model)), MiningSettings(range=(1, 40), absolute_margin=0.1)
    alone, judged = (
        Miner(encoder, data, "title_text", settings, reranker).mine(  # type: ignore[arg-type]
            train.query_rows, pairs, KnownPositives.of(pairs), 99, 0
        )
        for reranker in (None, ByRow())
    )
    left = set(zip(train.query_rows[alone.queries].tolist(), alone.doc_rows.tolist(), strict=True))
    assert asked == [set(zip(train.query_rows[train.query_index].tolist(), train.doc_rows.tolist(), strict=True)), left]
    worst = lowest_positive(pairs, pairs.pair_doc.astype(np.float32))[alone.queries]
    assert judged.doc_rows.tolist() == alone.doc_rows[alone.doc_rows < worst].tolist()


@pytest.mark.parametrize("margins", [{"relative": 0.05}, {"absolute": 0.02}, {"max_score": 0.3}, {}])
def test_the_same_negatives_as_sentence_transformers(beir: Path, static_model: Path, margins: dict[str, float]) -> None:
    """From rank 1 on: their range_min counts what the margins left, our ranks count documents."""
    data, depth = load_data(beir), 40
    training = data.training_split()
    queries = data.queries.texts(training.query_rows)
    rows = Dataset.from_dict(
        {
            "query": [queries[at] for at in training.query_index],
            "positive": data.corpus.texts(training.doc_rows),
        }
    )
    most = int(np.diff(training.offsets).max())
    arguments = {("max_score" if name == "max_score" else f"{name}_margin"): value for name, value in margins.items()}
    theirs = mine_hard_negatives(
        rows,
        SentenceTransformer(str(static_model), device="cpu"),
        corpus=data.corpus.texts(),
        range_max=depth,
        num_negatives=depth,
        sampling_strategy="top",
        verbose=False,
        **arguments,
    )
    table = opera.mine(beir, model=static_model, range=(1, depth), keep=depth, **arguments)
    text_of = dict(zip(data.corpus.ids(), data.corpus.texts(), strict=True))
    query_of = dict(zip(data.queries.ids(), data.queries.texts(), strict=True))
    ours = {(query_of[row["query_id"]], text_of[row["doc_id"]]) for row in table.to_pylist()}
    wider = set(zip(theirs["query"], theirs["negative"], strict=True))
    # They look at range_max documents beyond as many as a query has positives; we at range_max ranks.
    assert ours <= wider
    assert len(queries) == len(set(queries))
    deep = opera.mine(beir, model=static_model, range=(1, depth + most), keep=depth + most, **arguments)
    assert wider <= {(query_of[row["query_id"]], text_of[row["doc_id"]]) for row in deep.to_pylist()}
    assert margins == {} or len(ours) < opera.mine(beir, model=static_model, range=(1, depth), keep=depth).num_rows


def test_training_mines_as_the_command_does(
    beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"mining_relative_margin": 0.3, "negatives": "hard", "range": "1:40"}
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(
            beir, model=static_model, out=tmp_path / "run", max_steps=2, method="ft", guard=False, **settings
        )
    listed = run.record.negatives
    assert listed is not None
    table = opera.mine(beir, model=static_model, range=(1, 40), keep=200, relative_margin=0.3)
    assert listed.listed == table.num_rows
    assert "as similar to their query as the margins forbid" in caplog.text


def test_margins_need_mining(beir: Path, static_model: Path) -> None:
    with pytest.raises(SettingError, match=r"mining_relative_margin=0.05 needs negatives=hard, but negatives is auto"):
        opera.adapt(beir, model=static_model, out="run", mining_relative_margin=0.05)
    with pytest.raises(SettingError, match="--relative-margin: must be greater than or equal to 0, got -1"):
        opera.mine(beir, model=static_model, relative_margin=-1)
