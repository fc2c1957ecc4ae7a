"""Splits whose documents are new to train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.core.errors import DataError
from opera.data import RetrievalData
from opera.data.novelty import query_components, seen_share
from opera.data.splits import SplitKind, copy_splits, dev_count, draw_missing_splits, hold_out

KINDS: tuple[SplitKind, ...] = ("random", "new-documents", "like-test")

judgements = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=4, max_size=24)


def make_data(positives: list[set[int]], test: list[set[int]] | None = None) -> RetrievalData:
    qrels = {"train": {f"q{n}": {f"d{d}": 1 for d in docs} for n, docs in enumerate(positives)}}
    if test is not None:
        qrels["test"] = {f"t{n}": {f"d{d}": 1 for d in docs} for n, docs in enumerate(test)}
    names = [name for split in qrels.values() for name in split]
    return RetrievalData.from_dicts(
        "mine", corpus={f"d{d}": "a" for d in range(12)}, queries=dict.fromkeys(names, "b"), qrels=qrels
    )


def pairs_of(data: RetrievalData, split: str) -> set[tuple[int, int]]:
    qrels = data.split(split)
    return set(zip(qrels.query_rows[qrels.query_index].tolist(), qrels.doc_rows.tolist(), strict=True))


def test_queries_joined_by_a_chain_of_documents_are_one_component() -> None:
    components = query_components(make_data([{0}, {0, 1}, {1, 2}, {3}, {4}, {3, 5}]).training_split().pairs())
    assert components[0] == components[1] == components[2]
    assert components[3] == components[5]
    assert len(set(components.tolist())) == 3


def test_seen_share_counts_pairs_whose_document_train_names() -> None:
    data = make_data([{0}, {1}], [{0, 2}, {1}, {3}])
    assert seen_share(data, "test") == 0.5
    assert seen_share(data, "train") == 1.0


@given(judgements, st.sampled_from(KINDS), st.integers(0, 3))
def test_no_judgement_is_lost_and_no_query_is_in_two_splits(
    positives: list[set[int]], kind: SplitKind, seed: int
) -> None:
    data = make_data(positives, [{0}, {1, 2}])
    try:
        held = hold_out(data, "dev", 0.3, seed, kind)
    except DataError:
        return
    train, dev = pairs_of(held, "train"), pairs_of(held, "dev")
    left_out = held.held_out
    gone = (
        set()
        if left_out is None
        else set(zip(left_out.query_rows[left_out.query_index].tolist(), left_out.doc_rows.tolist(), strict=True))
    )
    assert train | dev | gone == pairs_of(data, "train")
    assert len(train) + len(dev) + len(gone) == len(pairs_of(data, "train"))
    assert not {query for query, _ in train | gone} & {query for query, _ in dev}
    assert dev
    assert {document for _, document in gone} <= {document for _, document in dev}
    assert len(gone) <= 0.3 * len(pairs_of(data, "train"))


def test_whole_components_are_held_out_where_the_graph_has_many() -> None:
    data = make_data([{n % 12} for n in range(48)])
    held = hold_out(data, "dev", 0.25, 0, "new-documents")
    assert held.split("dev").n_queries == 12
    assert held.held_out is None
    assert seen_share(held, "dev") == 0.0


def test_documents_are_held_out_where_the_graph_is_one_piece() -> None:
    chain = [{n % 11, n % 11 + 1} for n in range(66)] + [{n % 12} for n in range(24)]
    held = hold_out(make_data(chain), "dev", 0.1, 0, "new-documents")
    assert seen_share(held, "dev") == 0.0
    assert held.held_out is not None
    assert f"{len(held.held_out.doc_rows)} pairs that name held-out documents left train" in held.notes[-1]
    again = copy_splits(make_data(chain), source=held)
    assert pairs_of(again, "train") == pairs_of(held, "train")
    assert pairs_of(again, "dev") == pairs_of(held, "dev")


@pytest.mark.parametrize(("test", "expected"), [([{0}, {1}], 1.0), ([{10}, {11}], 0.0)])
def test_like_test_is_as_new_as_test(test: list[set[int]], expected: float) -> None:
    data = make_data([{n % 10} for n in range(60)], test)
    held = draw_missing_splits(data, seed=0, test_fraction=0.1, needs_dev=True)
    assert seen_share(held, "dev") == expected
    assert "(like-test, seed 0)" in held.notes[-1]


@pytest.mark.parametrize("other", ["train", "test"])
def test_a_dev_split_that_shares_queries_is_not_used(other: str) -> None:
    data = make_data([{n} for n in range(8)], [{8}, {9}, {10}])
    shared = data.split(other).select_queries(np.arange(data.split(other).n_queries) < 2)
    drawn = draw_missing_splits(
        replace(data, splits={**data.splits, "dev": shared}), seed=0, test_fraction=0.1, needs_dev=True
    )
    assert f"the data's own dev split is not used: 2 of its 2 queries are in {other} too" in drawn.notes
    for split in ("train", "test"):
        assert not np.isin(drawn.split("dev").query_rows, drawn.split(split).query_rows).any()


def test_like_test_needs_a_relevant_document_in_test() -> None:
    data = make_data([{n} for n in range(8)], [{0}, {1}])
    test = data.split("test")
    empty = replace(data, splits={**data.splits, "test": replace(test, grades=np.zeros_like(test.grades))})
    with pytest.raises(DataError, match="test"):
        draw_missing_splits(empty, seed=0, test_fraction=0.1, needs_dev=True)


def test_a_dev_split_better_known_than_test_is_not_used() -> None:
    data = make_data([{n % 10} for n in range(60)], [{10}, {11}])
    splits = {**data.splits, "dev": data.split("train").select_queries(np.arange(60) < 6)}
    splits["train"] = data.split("train").select_queries(np.arange(60) >= 6)
    known = RetrievalData(data.name, data.source, data.fingerprint, data.corpus, data.queries, splits)
    drawn = draw_missing_splits(known, seed=0, test_fraction=0.1, needs_dev=True)
    assert seen_share(drawn, "dev") == 0.0
    assert "own dev split is not used: train names 100% of its documents, but 0% of test's" in drawn.notes[0]
    halves = np.arange(6) < 3
    splits["test"], splits["dev"] = (splits["dev"].select_queries(half) for half in (halves, ~halves))
    kept = RetrievalData(data.name, data.source, data.fingerprint, data.corpus, data.queries, splits)
    assert draw_missing_splits(kept, seed=0, test_fraction=0.1, needs_dev=True) is kept


@pytest.mark.parametrize(("queries", "expected"), [(20, 5), (300, 75), (600, 100), (5000, 500), (50_000, 1000)])
def test_a_dev_split_is_neither_too_small_to_trust_nor_too_large_to_spare(queries: int, expected: int) -> None:
    assert dev_count(queries) == expected
