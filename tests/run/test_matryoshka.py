"""Matryoshka runs: each size is measured as a user would cut the embeddings, and the model says its sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from opera.core.errors import SettingError
from opera.data import load_data
from small_runs import SMALL


def test_each_size_is_measured_before_and_after(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", matryoshka="4,8,32", **SMALL)
    assert run.settings["matryoshka"] == [8, 4], "the whole always counts"
    sizes = run.record.matryoshka
    assert sizes is not None
    assert [each.size for each in sizes] == [8, 4]
    config = json.loads((run.model_path / "config.json").read_text())
    assert config["matryoshka_dimensions"] == [32, 8, 4]
    model = SentenceTransformer(str(run.model_path), device="cpu")
    assert model.truncate_dim is None
    assert sizes[1].after["nDCG@10"] == pytest.approx(_ndcg_of_cut(model, beir, 4), abs=1e-9)


def _ndcg_of_cut(model: SentenceTransformer, beir: Path, size: int) -> float:
    """nDCG@10 on test of the first dimensions, by NumPy alone; grades are 1 and 2."""
    data = load_data(beir)
    documents = model.encode_document(data.corpus.texts(np.arange(len(data.corpus))))
    qrels = data.judged_qrels("test")
    queries = model.encode_query(data.queries.texts(qrels.query_rows, "text"))
    cut = [part[:, :size] / np.linalg.norm(part[:, :size], axis=1, keepdims=True) for part in (queries, documents)]
    values, discount = [], 1 / np.log2(np.arange(2, 12))
    grades = np.zeros((len(queries), len(documents)))
    grades[qrels.query_index, qrels.doc_rows] = qrels.grades
    for scores, row in zip(cut[0] @ cut[1].T, grades, strict=True):
        best = np.argsort(-scores, kind="stable")[:10]
        values.append((row[best] * discount).sum() / (np.sort(row)[::-1][:10] * discount).sum())
    return float(np.mean(values))


def test_a_size_above_the_embeddings_is_refused(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="matryoshka=64: the embeddings have 24 dimensions; give smaller numbers"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", matryoshka=[64, 8])
    assert not (tmp_path / "run").exists()
