"""Where explicit negatives are drawn from, and pruning before mining; no negative is without a text, or is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from distinct import pool_of
from opera.data import GivenNegatives, Mixture, RetrievalData, load_all
from opera.data.pairs import pair_keys
from opera.data.qrels import DocumentLists
from opera.training.build import TrainingSet, build_training_set
from opera.training.documents import KnownPositives
from opera.training.negatives import MOST_DRAWS, ListedNegatives, RandomNegatives
from small_runs import prepare
from tiny_world import write_beir


@pytest.mark.parametrize("method", ["rp", "sp+dp"])
def test_a_pair_pruned_before_mining_becomes_a_negative(method, beir, static_model):
    """A pruned positive becomes a negative of its query, and neither mask nor mining knows it any more."""
    values = {"method": method, "k": 0.6, "negatives": "hard", "range": (1, 1000), "keep": 1000}
    sets = {}
    for first in (False, True):
        prepared = prepare(beir, static_model, **values, prune_before_mining=first)
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


def test_a_list_is_drawn_without_repeats_and_random_documents_anew_at_each_step():
    lists = DocumentLists.of([np.array([3, 5, 8]), np.array([], dtype=int), np.array([2])])
    assert lists.queries_without == 1
    listed = ListedNegatives(lists, pool_of(10))
    for step in range(50):
        drawn = listed.draw(np.array([0, 1, 2]), 2, seed=0, step=step)
        assert set(drawn[0]) <= {3, 5, 8}
        assert len(set(drawn[0])) == 2
        assert (drawn[1] < 10).all()
        assert drawn[2].tolist() == [2, 2]
        assert sorted(listed.draw(np.array([0]), 3, seed=0, step=step)[0]) == [3, 5, 8]
    random = RandomNegatives(pool_of(10))
    assert np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 1))
    assert not np.array_equal(random.draw(np.arange(4), 3, 0, 1), random.draw(np.arange(4), 3, 0, 2))


BLANK = [f"d{row}" for row in range(120, 180)]
"""As many documents without a text as would be drawn at once, were they not left out."""
TITLED = ["d180", "d181"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    home = write_beir(tmp_path_factory.mktemp("empty") / "data", dev=True)
    with (home / "corpus.jsonl").open("a") as file:
        file.writelines(json.dumps({"_id": name, "title": "", "text": " "}) + "\n" for name in BLANK)
        file.writelines(json.dumps({"_id": name, "title": "common1", "text": ""}) + "\n" for name in TITLED)
    with (home / "qrels" / "train.tsv").open("a") as file:
        file.write("train0\td180\t1\n")
    return home


def training_set(data: RetrievalData | Mixture, model: Path, **settings: object) -> TrainingSet:
    return build_training_set(prepare(data, model, **{"method": "ft", **settings}))


@pytest.mark.parametrize("kind", ["random", "labelled", "hard", "given"])
def test_negatives_have_a_text(folder, static_model, kind):
    data = opera.load_data(folder)
    everything = np.tile(np.arange(len(data.corpus), dtype=np.int32), len(data.queries))
    negatives = GivenNegatives(np.arange(len(data.queries) + 1) * len(data.corpus), everything)
    data = replace(data, given_negatives=negatives)
    ranks = {"range": "1:180"} if kind == "hard" else {}
    built = training_set(data, static_model, negatives=kind, corpus_text="text", **ranks)
    drawn = np.concatenate([built.negatives.sets[0].draw(np.arange(20), 4, 0, step).ravel() for step in range(20)])
    empty = data.corpus.empty_rows("text")
    assert len(empty) == len(BLANK) + len(TITLED)
    assert not np.isin(drawn, empty).any()


def test_labelled_negatives_are_the_documents_with_a_training_pair(beir, static_model):
    built = training_set(opera.load_data(beir), static_model, negatives="labelled")
    drawn = built.negatives.sets[0].draw(np.arange(50), 100, 0, 0)
    assert set(drawn.ravel().tolist()) == set(built.pairs.pair_doc.tolist()) != set(range(len(built.data.corpus)))


@pytest.mark.parametrize(("more_steps", "kind"), [(0, "random"), (1, "labelled")])
def test_many_draws_per_document_make_the_automatic_negatives_labelled(beir, static_model, more_steps, kind):
    data = opera.load_data(beir)
    steps = MOST_DRAWS * len(data.corpus) // 8 + more_steps
    settings = {"max_steps": steps, "per_device_train_batch_size": 8}
    assert (MOST_DRAWS * len(data.corpus)) % 8 == 0
    assert training_set(data, static_model, **settings).negatives.kind == kind
    assert training_set(data, static_model, **settings, negatives="random").negatives.kind == "random"
    prepared = prepare(data, static_model, method="ft", **settings)
    assert prepared.resolved_as({"negatives": "random"}).data.negatives == "random", "as before the run was resumed"
    assert training_set(data, static_model, **settings, train_group_size=1).negatives.kind == "none"


def test_the_rule_of_the_draws_holds_for_each_of_several_data_sets(tmp_path, static_model):
    small, large = write_beir(tmp_path / "small"), write_beir(tmp_path / "large", n_docs=1500)
    data = load_all([small, large])
    settings = {"max_steps": 600, "per_device_train_batch_size": 8, "mix": "equal"}
    kinds = training_set(data, static_model, **settings).negatives.sets
    pools = [negatives.pool for negatives in kinds]
    assert len(pools[0]) < 120, "only documents with a training pair, since each would be drawn more than 15 times"
    assert len(pools[1]) == 1500


def test_no_negatives_are_a_group_of_one(train):
    weights = []
    for name, setting in {"none": {"negatives": "none"}, "one": {"train_group_size": 1}}.items():
        values = {"max_steps": 3, "per_device_train_batch_size": 8, "guard": False, **setting}
        run = train(name, **values)
        assert run.settings["negatives"] == "none"
        weights.append((run.model_path / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


QUERIES, DOCUMENTS = 6, 9


@given(st.data())
def test_known_positives_of_a_batch_are_those_of_each_query(data):
    def numbers(below: int, size: int) -> np.ndarray:
        return np.array(data.draw(st.lists(st.integers(0, below - 1), min_size=size, max_size=size)), dtype=np.int32)

    count = data.draw(st.integers(1, 20))
    keys = np.unique(pair_keys(numbers(QUERIES, count), numbers(DOCUMENTS, count)))
    known = KnownPositives(keys, numbers(QUERIES, QUERIES), numbers(DOCUMENTS, DOCUMENTS))
    batch, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    documents = numbers(DOCUMENTS, batch * columns).reshape(batch, columns)
    first = data.draw(st.integers(0, batch - 1))
    queries = numbers(QUERIES, batch - first)
    expected = known.contains(queries[:, None], documents.T.ravel())
    expected[np.arange(len(queries)), first + np.arange(len(queries))] = False
    assert np.array_equal(known.among_negatives(queries, documents, first), expected)
