"""Where explicit negatives are drawn from, and pruning before mining."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import opera
from distinct import pool_of
from opera.config.recipe import make_recipe
from opera.data import load_data
from opera.training_set.build import build_training_set
from opera.training_set.documents import Lists
from opera.training_set.negatives import ListedNegatives, RandomNegatives
from opera.training_set.prepare import load_and_check
from small_runs import SMALL


@pytest.mark.parametrize("method", ["rp", "sp+dp"])
def test_pruned_before_mining(method: str, beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pruned positive becomes a negative of its query, and neither mask nor mining knows it any more."""
    monkeypatch.setattr("opera.training_set.negatives.MOST_MINED", 1000)
    values = {"method": method, "k": 0.6, "negatives": "hard", "range": (1, 1000)}
    sets = {}
    for first in (False, True):
        recipe = make_recipe({**values, "prune_before_mining": first})
        prepared = load_and_check(load_data(beir), str(static_model), recipe)
        sets[first] = build_training_set(prepared)
    kept = sets[True].methods(prepared.recipe, 1)[0].kept
    pairs, n_docs = sets[True].pairs, len(sets[True].data.corpus)
    keys = pairs.pair_query.astype(np.int64) * n_docs + pairs.pair_doc
    listed = {}
    for first, found in sets.items():
        listed[first] = found.negatives.lists.queries * n_docs + found.negatives.lists.doc_rows
    assert not np.isin(listed[False], keys).any()
    assert not np.isin(listed[True], keys[kept]).any()
    pruned = keys[~kept & np.isin(keys, listed[True])]
    assert np.array_equal(np.setdiff1d(listed[True], listed[False]), pruned)
    assert len(pruned)
    known = sets[True].negatives.known.contains(pairs.pair_query, pairs.pair_doc)
    assert np.array_equal(known, kept), "else the mask would leave the mined ones out again"
    assert sets[False].negatives.known.contains(pairs.pair_query, pairs.pair_doc).all()


def test_draws() -> None:
    lists = Lists.of([np.array([3, 5, 8]), np.array([], dtype=int), np.array([2])])
    assert lists.queries_without == 1
    listed = ListedNegatives(lists, pool_of(10))
    for step in range(50):
        drawn = listed.draw(np.array([0, 1, 2]), 2, seed=0, step=step)
        assert set(drawn[0]) <= {3, 5, 8}
        assert len(set(drawn[0])) == 2
        assert (drawn[1] < 10).all()
        assert drawn[2].tolist() == [2, 2]
    random = RandomNegatives(pool_of(10))
    assert np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 1))
    assert not np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 2))


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
    assert run.record.data.notes[0].startswith("no test split is given, so OPERA expects future queries about new")
    assert run.record.data.notes[1:] == [
        "moved 2 of the 20 train queries to test (new, seed 0); 0% of their documents are known"
    ]
