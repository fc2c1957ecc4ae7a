"""Random, mined and given negatives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.core.errors import SettingError
from opera.data import load_data
from opera.data.pairs import TrainingPairs
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.models import load_model
from opera.retrieval.search import exact_search
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, RandomNegatives, mine_hard_negatives
from small_runs import SMALL


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def test_mined_come_from_the_ranks_and_are_no_positives(beir: Path, static_model: Path) -> None:
    data = load_data(beir)
    training = data.training_split()
    pairs, encoder = training.pairs(), Encoder(load_model(static_model, "cpu"))
    queries, corpus = encoder.encode_queries(data, training.query_rows), encoder.encode_corpus(data)
    known = KnownPositives(pairs, len(corpus))
    ranking = exact_search(queries, corpus, data.corpus, 20)
    mined = mine_hard_negatives(ranking, known, (3, 20), 5, seed=0)
    for query in range(pairs.n_queries):
        found = mined.doc_rows[mined.offsets[query] : mined.offsets[query + 1]]
        allowed = set(ranking.doc_rows[query][2:20]) - set(pairs.pair_doc[pairs.pair_query == query])
        assert set(found.tolist()) <= allowed
        assert len(found) == min(5, len(allowed))


def test_a_range_past_the_corpus_is_refused(pairs: TrainingPairs) -> None:
    ranking = Ranking(np.zeros((4, 120), dtype=np.int32), np.zeros((4, 120), dtype=np.float32))
    with pytest.raises(SettingError, match=r"range=500:600 starts past the end of the corpus \(120 documents\)"):
        mine_hard_negatives(ranking, KnownPositives(pairs, 120), (500, 600), 5, 0)


def test_draws() -> None:
    listed = ListedNegatives.from_lists([np.array([3, 5, 8]), np.array([], dtype=int), np.array([2])], 10)
    assert listed.queries_without == 1
    for step in range(50):
        drawn = listed.draw(np.array([0, 1, 2]), 2, seed=0, step=step)
        assert set(drawn[0]) <= {3, 5, 8}
        assert len(set(drawn[0])) == 2
        assert (drawn[1] < 10).all()
        assert drawn[2].tolist() == [2, 2]
    random = RandomNegatives(10)
    assert np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 1))
    assert not np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 2))


def test_hard_negatives(beir: Path, static_model: Path, tmp_path: Path) -> None:
    run = opera.adapt(
        beir, model=static_model, out=tmp_path / "run", **SMALL, negatives="hard", range=(2, 40), train_group_size=4
    )
    assert run.record.negatives.kind == "hard"
    assert run.record.negatives.listed > 0
    assert run.settings["range"] == [2, 40]


def test_flag_files_train_with_their_negatives(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {
            "query": f"t{i % 12}w5 t{i % 12}w6 common{i}",
            "pos": [f"t{i % 12}w1 common{i}"],
            "neg": [f"t{(i + 1) % 12}w2"],
        }
        for i in range(20)
    ]
    path.write_text("\n".join(json.dumps(record) for record in records))
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, guard=False)
    assert run.settings["negatives"] == "given"
    assert run.record.data.notes == [
        "drew 2 of the 20 train queries as test (new-documents, seed 0); train names 0% of their documents"
    ]
