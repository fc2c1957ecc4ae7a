"""Mined negatives: ranks, margins and the reranker's veto, against sentence-transformers' own miner."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

import opera
from backbones import write_reranker
from opera.config.negatives import MiningSettings
from opera.data.qrels import DocumentLists
from opera.retrieval.encoder import open_encoder
from opera.training import negatives
from opera.training.documents import DocumentPool, KnownPositives
from opera.training.negatives import Miner, lowest_positive, may_be_negative


def mined(
    data: opera.RetrievalData, model: Path, keep: int = 120, reranker: Any = None, **settings: Any
) -> DocumentLists:
    miner = Miner(open_encoder(str(model)), data, "title_text", MiningSettings(keep=keep, **settings), reranker)
    train = data.training_split()
    pairs = train.pairs()
    return miner.mine(train.query_rows, pairs, KnownPositives.of(data, train.query_rows, pairs), seed=0)


def test_the_reranker_sees_what_the_margins_left(beir, static_model):
    data, asked = opera.load_data(beir), []
    train = data.training_split()

    class ByRow:
        """A document's score is its row."""

        def score_pairs(self, data: object, queries: np.ndarray, docs: np.ndarray, text: str) -> np.ndarray:
            asked.append(set(zip(queries.tolist(), docs.tolist(), strict=True)))
            return np.asarray(docs, dtype=np.float32)

    alone, judged = (mined(data, static_model, 120, by, range=(1, 40), absolute_margin=0.1) for by in (None, ByRow()))
    left = set(zip(train.query_rows[alone.queries].tolist(), alone.doc_rows.tolist(), strict=True))
    assert asked == [set(zip(train.query_rows[train.query_index].tolist(), train.doc_rows.tolist(), strict=True)), left]
    worst = lowest_positive(train.pairs(), train.doc_rows.astype(np.float32))[alone.queries]
    assert judged.doc_rows.tolist() == alone.doc_rows[alone.doc_rows < worst].tolist()


@pytest.mark.parametrize("margins", [{"relative_margin": 0.05}, {"absolute_margin": 0.02}, {"max_score": 0.3}])
def test_the_same_negatives_as_sentence_transformers(beir, static_model, margins):
    """From rank 1 on: their range_min counts what the margins left, our ranks count documents."""
    data, depth = opera.load_data(beir), 40
    train = data.training_split()
    queries = data.queries.texts(train.query_rows)
    assert len(queries) == len(set(queries))
    theirs = mine_hard_negatives(
        Dataset.from_dict(
            {"query": [queries[at] for at in train.query_index], "positive": data.corpus.texts(train.doc_rows)}
        ),
        SentenceTransformer(str(static_model), device="cpu"),
        corpus=data.corpus.texts(),
        range_max=depth,
        num_negatives=depth,
        sampling_strategy="top",
        verbose=False,
        **margins,
    )
    wider = set(zip(theirs["query"], theirs["negative"], strict=True))

    def ours(depth: int, **margins: float) -> set[tuple[str, str]]:
        lists = mined(data, static_model, range=(1, depth), **margins)
        texts = [queries[at] for at in lists.queries]
        return set(zip(texts, data.corpus.texts(lists.doc_rows), strict=True))

    # They look at range_max documents beyond as many as a query has positives; we at range_max ranks.
    assert ours(depth, **margins) <= wider <= ours(depth + int(np.diff(train.offsets).max()), **margins)
    assert len(ours(depth, **margins)) < len(ours(depth))


def test_training_mines_as_the_command_does(train, beir, static_model, tmp_path, caplog):
    """A maximum, a reranker and how many to keep; a margin of the lowest positive would leave none of these."""
    reranker = write_reranker(tmp_path / "reranker")
    mining = {"range": "1:40", "keep": 9, "max_score": 0.3}
    mining["reranker"] = reranker
    settings = {**mining, "negatives": "hard", "train_group_size": 4}
    with caplog.at_level("INFO", logger="opera"):
        run = train(max_steps=2, method="ft", guard=False, **settings)
    assert run.record.negatives.kind == "hard"
    assert "too similar to the query for the margins" in caplog.text
    assert "the reranker scores them as high as a positive" in caplog.text
    table = opera.mine(beir, model=static_model, **mining)
    assert run.record.negatives.listed == table.num_rows
    queries, negatives = opera.load_data(beir).counts()["train_queries"], table.num_rows
    assert 0 < negatives < 9 * queries
    assert opera.mine(beir, model=static_model, **{**mining, "keep": 1}).num_rows <= queries


def test_the_memory_of_mining_is_that_of_a_block(monkeypatch):
    """Per candidate, a block takes a few numbers of 8 bytes; all candidates take one bool."""
    monkeypatch.setattr(negatives, "CANDIDATES_AT_ONCE", 2**14)
    n_queries, depth, n_documents = 4_000, 100, 5_000
    rng = np.random.default_rng(0)
    groups = np.arange(n_documents, dtype=np.int32)
    known = KnownPositives(np.zeros(1, np.int64), np.arange(n_queries, dtype=np.int32), groups)
    candidates = rng.integers(0, n_documents, (n_queries, depth)).astype(np.int32)
    tracemalloc.start()
    try:
        allowed = may_be_negative(candidates, known, DocumentPool(groups))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allowed.shape == candidates.shape
    assert peak < allowed.nbytes + 2**14 * 100
    assert 8 * candidates.size > 2**14 * 100, "the bound would not notice 8 bytes per candidate"
