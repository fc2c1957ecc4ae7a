"""FAISS's approximate indexes: what they find has exact scores, what they miss is measured, and they are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core import extras
from opera.core.errors import MissingExtraError
from opera.retrieval.encoder import open_encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.search import search_corpus

faiss = pytest.importorskip("faiss")
approximate = pytest.importorskip("opera.retrieval.approximate")

ROWS = np.arange(30)
INDEXES = pytest.mark.parametrize("kind", ["hnsw", "ivf"])


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))


def same(one: Ranking, other: Ranking) -> bool:
    return np.array_equal(one.doc_rows, other.doc_rows) and np.array_equal(one.scores, other.scores)


@INDEXES
def test_what_is_found_has_its_exact_score_and_order(
    kind: str, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(approximate, "LEAST_LISTS", 1)
    monkeypatch.setattr(approximate, "DOCUMENTS", 50)
    monkeypatch.setattr(approximate, "QUERIES", 7)
    data, encoder = opera.load_data(beir), open_encoder(static_model)
    exact = search_corpus(encoder, data, ROWS, len(data.corpus))
    with caplog.at_level("INFO", logger="opera"):
        ranking = search_corpus(encoder, data, ROWS, 10, index=kind)  # type: ignore[arg-type]
    overlap = 0
    for rows, scores, all_rows, all_scores in zip(
        ranking.doc_rows, ranking.scores, exact.doc_rows, exact.scores, strict=True
    ):
        places = np.argsort(all_rows)[rows]
        assert (np.diff(places) > 0).all()
        assert np.array_equal(scores, all_scores[places])
        overlap += int((places < 10).sum())
    assert f"recall@10 of the {kind} index is " in caplog.text
    assert overlap >= 0.5 * ranking.doc_rows.size


@INDEXES
def test_the_index_and_its_recall_are_kept(
    kind: str, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, query = opera.load_data(beir), "a query of mine"
    first = opera.search(data, query, model=static_model, index=kind)

    def again(*arguments: object) -> None:
        raise AssertionError("it is kept")

    monkeypatch.setattr(approximate, "_build", again)
    monkeypatch.setattr(approximate, "exact_search", again)
    assert opera.search(data, query, model=static_model, index=kind) == first
    monkeypatch.setattr(approximate, "LAYOUT", "another")
    with pytest.raises(AssertionError, match="it is kept"):
        opera.search(data, query, model=static_model, index=kind)


def test_the_package_is_an_extra(beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError):
        opera.search(beir, "tea", model=static_model, index="hnsw")
