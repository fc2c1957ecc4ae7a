"""``opera.score`` and ``opera.mine``: tables for Python, files for other tools, and a teacher's scores."""

import json
import string
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

import opera
from backbones import write_reranker
from small_runs import SMALL
from tiny_world import write_letter_model


def test_score_returns_what_it_writes(beir, static_model, tmp_path):
    table = opera.score(beir, model=static_model, out=tmp_path / "pairs.parquet", cbs_pool=20)
    assert table.column_names == ["query_id", "doc_id", "grade", "similarity", "loss", "cbs"]
    assert table.num_rows == opera.load_data(beir).counts()["train_pairs"]
    assert table.equals(pq.read_table(tmp_path / "pairs.parquet"))
    assert (np.abs(table["similarity"].to_numpy()) <= 1.0001).all()
    assert opera.score(beir, model=static_model).column_names == table.column_names[:-1]
    lines = (tmp_path / "pairs.tsv", tmp_path / "pairs.jsonl")
    for path in lines:
        opera.score(opera.load_data(beir), model=static_model, out=path)
    assert len(lines[0].read_text().splitlines()) == table.num_rows + 1
    assert json.loads(lines[1].read_text().splitlines()[0])["query_id"] == table["query_id"][0].as_py()


def test_scores_are_those_of_a_run(tmp_path):
    """A run reads 128 tokens of a query and 512 of a document."""
    model = write_letter_model(tmp_path / "model", positions=200)
    data = opera.load_data(pairs=[(f"{letter} " * 130 + "x y z", f"{letter} x") for letter in string.ascii_lowercase])
    settings = {**SMALL, "precision": "fp32"}
    run = opera.adapt(data, model=model, out=tmp_path / "run", **settings, guard=False, method="sp", k=1.0)
    similarities = dict(zip(*(run.pairs()[name].to_pylist() for name in ("doc_id", "similarity")), strict=True))
    scored = opera.score(data, model=model, max_query_length=128, max_passage_length=512, precision="fp32")
    for name, similarity in zip(scored["doc_id"].to_pylist(), scored["similarity"].to_pylist(), strict=True):
        assert similarity == pytest.approx(similarities.get(name, similarity), abs=1e-6)  # batches differ
    assert len(similarities) > 20


def test_scores_and_negatives_are_of_the_lengths_in_the_models_folder(tmp_path):
    """The end of a query, after its 20th token, decides here; ``mine`` and ``score`` used to read 128 tokens always."""
    letters = string.ascii_lowercase
    texts = [f"{letter} " * 20 + f"{other} " * 130 for letter, other in zip(letters, letters[::-1], strict=True)]
    data = opera.load_data(pairs=[(text, f"{letter} x") for text, letter in zip(texts, letters, strict=True)])
    long, short = write_letter_model(tmp_path / "long" / "model", positions=200), tmp_path / "short"
    model = SentenceTransformer(str(long), device="cpu")
    model[0].query_length = 22  # with the first and the last token
    model.save_pretrained(str(short), create_model_card=False)
    run = opera.adapt(
        data, model=long, out=tmp_path / "run", method="ft", guard=False, max_steps=1, learning_rate=1e-9,
        precision="fp32", max_query_length=22,
    )  # fmt: skip
    options = {"precision": "fp32", "max_query_length": 22}
    scores = [opera.score(data, model=base, precision="fp32")["similarity"] for base in (long, short, run.path)]
    wanted = opera.score(data, model=long, **options)["similarity"]
    assert scores[0] != wanted
    assert scores[1] == wanted
    assert np.allclose(scores[2], wanted, atol=1e-4), "a step with a rate of 1e-9 hardly changes a cosine"
    mined = [opera.mine(data, model=base, range=(1, 3), precision="fp32") for base in (long, short)]
    assert mined[0] != mined[1]
    assert mined[1] == opera.mine(data, model=long, range=(1, 3), **options)


def test_mine_returns_what_it_writes(beir, static_model, tmp_path):
    table = opera.mine(beir, model=static_model, out=tmp_path / "mined.tsv", range=(3, 20), keep=4)
    assert table.column_names == ["query_id", "doc_id"]
    rows = [line.split("\t") for line in (tmp_path / "mined.tsv").read_text().splitlines()]
    assert rows[0] == ["query-id", "corpus-id"]
    assert rows[1:] == [list(row.values()) for row in table.to_pylist()]
    positives = opera.score(beir, model=static_model)
    known = set(zip(positives["query_id"].to_pylist(), positives["doc_id"].to_pylist(), strict=True))
    assert not known & {tuple(row) for row in rows[1:]}
    again = opera.mine(beir, model=static_model, out=tmp_path / "mined.jsonl", range=(3, 20), keep=4)
    assert again.equals(table)
    records = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert sum(len(record["neg"]) for record in records) == table.num_rows
    assert max(len(record["neg"]) for record in records) == 4
    assert opera.load_data(tmp_path / "mined.jsonl").given_negatives is not None


@pytest.fixture(scope="module")
def reranker(tmp_path_factory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("teacher") / "reranker")


def test_a_reranker_scores_pairs_and_mined_negatives(beir, static_model, reranker, tmp_path):
    alone = opera.score(beir, reranker=reranker)
    assert alone.column_names == ["query_id", "doc_id", "score"]
    assert alone.num_rows == opera.load_data(beir).counts()["train_pairs"]
    both = opera.score(
        beir, reranker=reranker, model=static_model, negatives=3, range=(1, 30), out=tmp_path / "t.parquet"
    )
    mined = opera.mine(beir, model=static_model, range=(1, 30), keep=3)
    found = {(row["query_id"], row["doc_id"]): row["score"] for row in both.to_pylist()}
    wanted = {(row["query_id"], row["doc_id"]) for table in (alone, mined) for row in table.to_pylist()}
    assert found.keys() == wanted
    assert all(
        found[row["query_id"], row["doc_id"]] == pytest.approx(row["score"], abs=0.02) for row in alone.to_pylist()
    )
    assert both.equals(pq.read_table(tmp_path / "t.parquet"))


def test_the_jsonl_of_a_teacher_is_a_training_file_with_scores(beir, static_model, reranker, tmp_path):
    path = tmp_path / "scored.jsonl"
    table = opera.score(beir, reranker=reranker, model=static_model, negatives=3, out=path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(len(r["pos_scores"]) + len(r["neg_scores"]) for r in records) == table.num_rows
    assert all(len(r["pos"]) == len(r["pos_scores"]) and len(r["neg"]) == len(r["neg_scores"]) == 3 for r in records)
    data = opera.load_data(path)
    assert sorted(set(data.teacher.scores.tolist())) == sorted(set(table["score"].to_pylist()))
    again = opera.score(path, model=static_model, negatives="given")  # a model's cosines in their place
    assert again.num_rows == len(data.teacher)
    assert max(again["score"].to_pylist()) <= 1.0001
