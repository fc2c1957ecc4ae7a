"""Evaluating an encoder on a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opera
from opera.retrieval.encoder import open_encoder
from opera.retrieval.evaluation import query_difficulty, relevant_ids


def test_recall_follows_from_the_lists_of_documents(beir: Path, static_model: Path) -> None:
    """R@10 by hand: the share of a query's relevant ids among its ten best documents."""
    data = opera.load_data(beir)
    found = opera.evaluate(data, model=static_model, measures=["R@10"])
    relevant = relevant_ids(data, "test")
    recalls = [len(set(best) & set(ids)) / len(ids) for best, ids in zip(found.top_documents, relevant, strict=True)]
    assert found.per_query["R@10"] == pytest.approx(recalls)
    train = data.split("train")
    assert [len(ids) for ids in relevant_ids(data, "train")] == np.diff(train.offsets).tolist()


def test_difficulty_is_the_mean_similarity_to_the_relevant_documents(beir: Path, static_model: Path) -> None:
    data, encoder = opera.load_data(beir), open_encoder(static_model)
    queries, documents = encoder.encode(data.queries.texts(), "query"), encoder.encode(data.corpus.texts(), "document")
    test = data.split("test")
    by_hand = [
        (documents[test.doc_rows[start:end]] @ queries[row]).mean()
        for row, start, end in zip(test.query_rows, test.offsets[:-1], test.offsets[1:], strict=True)
    ]
    difficulty = query_difficulty(encoder, data, "test")
    assert difficulty.dtype == np.float32
    assert difficulty == pytest.approx(np.array(by_hand), abs=1e-5)  # 24 float32 terms: 24·2⁻²⁴ on either side
