"""Draw the splits that a data set lacks from its train queries, and apply one data set's splits to another.

A split that is to stand for tomorrow's queries must be as new as they are (issue 11). Kinds of draws:

- ``random``: any queries; train goes on naming most of their documents.
- ``new-documents``: queries whose documents train does not name: whole connected components of the graph of queries
  and documents, or, where it is one piece, documents held out with every pair that names them.
- ``like-test``: a mixture of the two, in which train names as large a share of the judged documents as it does in test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.combined import for_each
from opera.data.novelty import named_share, query_components, seen_share
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData

SplitKind = Literal["like-test", "new-documents", "random"]

DEV_FRACTION, LEAST_DEV, MOST_DEV, MOST_DEV_FRACTION = 0.1, 100, 1000, 0.25
"""A dev split is a tenth of train, but at least 100 queries, at most 1,000, and never more than a quarter."""
MOST_PAIRS_LEFT_OUT = 0.3
"""Share of the training pairs that held-out documents may take with them."""
ALIKE = 0.1
"""Shares of seen documents that differ by less than this count as alike."""


def draw_missing_splits(
    data: RetrievalData,
    *,
    seed: int,
    test_fraction: float,
    needs_dev: bool = False,
    dev_fraction: float | None = None,
    kind: SplitKind | None = None,
) -> RetrievalData:
    """Draw a test split from train if there is none, then a dev split if one is needed.

    A dev split that came with the data is used unless ``kind`` is given, train or test has some of its queries, or its
    documents are much better known to train than those of test.

    Args:
        data: the data set.
        seed: of the draws.
        test_fraction: share of the train queries that go to test.
        needs_dev: whether a dev split is needed.
        dev_fraction: share of the remaining train queries that go to dev; ``None``: :func:`dev_count` decides.
        kind: what to draw; ``None``: ``like-test`` where the data has a test split, else ``new-documents``.

    Raises:
        DataError: if train has too few queries, or if dev is to be like a test split without a relevant document.
    """
    if data.parts:
        draw = partial(
            draw_missing_splits,
            seed=seed,
            test_fraction=test_fraction,
            needs_dev=needs_dev,
            dev_fraction=dev_fraction,
            kind=kind,
        )
        return for_each(data, draw)
    kind_of_test: SplitKind = "random" if kind == "random" else "new-documents"
    chosen, drew_test = kind or "like-test", "test" not in data.splits
    if drew_test:
        data = hold_out(data, "test", test_fraction, seed, kind_of_test)
        chosen = kind_of_test
    if not needs_dev:
        return data
    if "dev" in data.splits:
        reason = _doubt_dev(data) if kind is None else f"dev_split={kind}"
        if not reason:
            return data
        data = _without_dev(data, reason)
    if chosen == "like-test":
        data.judged_qrels("test")  # an error where no document of test is relevant
    return hold_out(data, "dev", dev_fraction, seed, chosen)


def dev_count(n_queries: int, fraction: float | None = None) -> int:
    """Number of dev queries to draw from ``n_queries``; see :data:`DEV_FRACTION`."""
    wanted = DEV_FRACTION * n_queries
    if fraction is None:
        fraction = min(max(wanted, LEAST_DEV), MOST_DEV, MOST_DEV_FRACTION * n_queries) / n_queries
    return min(max(1, round(fraction * n_queries)), n_queries - 1)


def hold_out(
    data: RetrievalData, split: str, fraction: float | None, seed: int, kind: SplitKind = "random"
) -> RetrievalData:
    """Move some of the train queries to a new split, and add a note.

    Only queries with a relevant document are drawn. At least one is drawn, and at least one stays in train. Training
    pairs that name a held-out document leave train for ``data.held_out``.

    Raises:
        DataError: if train has fewer than two queries with a relevant document.
    """
    train = data.split("train")
    candidates = np.flatnonzero(train.has_relevant)
    if len(candidates) < 2:
        few = f"{len(candidates)} train queries are too few to draw one"
        advice = "; the guard needs one, so pass guard=false" if split == "dev" else ""
        raise DataError(f"{data.title}: has no split '{split}', and {few}{advice}")
    count = dev_count(len(candidates), fraction)
    rng = generator(seed, f"data.{split}")
    relevant = train.relevant()
    draw = _draw_like_test(data, relevant, count, rng) if kind == "like-test" else _draw(relevant, count, kind, rng)
    drawn = np.isin(np.arange(train.n_queries), candidates[draw.queries])
    moved, left = train.select_queries(drawn), train.select_queries(~drawn)
    gone = np.isin(left.doc_rows, draw.documents) & (left.grades > 0)
    splits = {**data.splits, "train": left.select_judgements(~gone), split: moved}
    held_out = left.select_judgements(gone)
    if data.held_out is not None:
        held_out = held_out.union(data.held_out)
    changed = replace(data, splits=splits, held_out=held_out if len(held_out.doc_rows) else None)
    return replace(changed, notes=(*data.notes, _note(changed, split, kind, len(draw.queries), len(candidates), seed)))


def copy_splits(data: RetrievalData, *, source: RetrievalData) -> RetrievalData:
    """Split the train queries of ``data`` as in ``source``, which was made from it; notes come from ``source``."""
    train = data.split("train")
    splits = {name: _as_in(data, train, name, qrels) for name, qrels in source.splits.items()}
    if source.held_out is not None:
        splits["train"] = splits["train"].select_judgements(~source.held_out.contains(splits["train"]))
    return replace(data, splits=splits, held_out=source.held_out, notes=source.notes)


@dataclass(frozen=True)
class _Draw:
    """Queries to move to a new split, numbered as in the relevant judgements, and documents that leave train.

    Attributes:
        queries: int64, ascending.
        documents: int64, corpus rows.
    """

    queries: NDArray[np.int64]
    documents: NDArray[np.int64]


def _draw(relevant: Qrels, count: int, kind: SplitKind, rng: np.random.Generator) -> _Draw:
    order = rng.permutation(relevant.n_queries)
    if kind == "random":
        return _Draw(np.sort(order[:count]), np.empty(0, dtype=np.int64))
    whole = _whole_components(relevant, count, order)
    if len(whole) >= count / 2:
        return _Draw(whole, np.empty(0, dtype=np.int64))
    return _documents_held_out(relevant, count, order)


def _whole_components(relevant: Qrels, count: int, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fill ``count`` places with whole components, in the order of their first query, leaving out those too large."""
    component = query_components(relevant.pairs())
    sizes = np.bincount(component)
    first = component[order]
    _, places = np.unique(first, return_index=True)
    chosen, left = np.zeros(len(sizes), dtype=bool), count
    for label in first[np.sort(places)]:
        if sizes[label] <= left:
            chosen[label] = True
            left -= int(sizes[label])
    return np.flatnonzero(chosen[component]).astype(np.int64)


def _documents_held_out(relevant: Qrels, count: int, order: NDArray[np.int64]) -> _Draw:
    """Hold out all documents of queries drawn at random, until ``count`` queries have no other documents.

    Queries are passed over whose documents would take more than :data:`MOST_PAIRS_LEFT_OUT` of the pairs with them.
    """
    documents, index = np.unique(relevant.doc_rows, return_inverse=True)
    pairs_of = np.bincount(index)
    outside = np.diff(relevant.offsets).copy()  # documents of each query that are not held out
    by_document = np.argsort(index, kind="stable")
    starts = np.concatenate([[0], np.cumsum(pairs_of)])
    held, room = np.zeros(len(documents), dtype=bool), MOST_PAIRS_LEFT_OUT * len(index)
    for query in order:
        own = np.unique(index[relevant.offsets[query] : relevant.offsets[query + 1]])
        new = own[~held[own]]
        if pairs_of[new].sum() > room:
            continue
        room -= int(pairs_of[new].sum())
        held[new] = True
        for document in new:
            outside[relevant.query_index[by_document[starts[document] : starts[document + 1]]]] -= 1
        if (outside == 0).sum() >= count:
            break
    inside = np.flatnonzero(outside == 0)
    if len(inside) in (0, relevant.n_queries):  # too few documents to part train from anything
        return _Draw(np.sort(order[:count]), np.empty(0, dtype=np.int64))
    taken = order[np.isin(order, inside)][:count]
    return _Draw(np.sort(taken), documents[held].astype(np.int64))


def _draw_like_test(data: RetrievalData, relevant: Qrels, count: int, rng: np.random.Generator) -> _Draw:
    """Mix new documents with random queries until train names the same share of them as of test's documents."""
    wanted = seen_share(data, "test")
    random = _draw(relevant, count, "random", rng)
    drawn = np.isin(np.arange(relevant.n_queries), random.queries)
    natural = named_share(relevant.select_queries(drawn), relevant.select_queries(~drawn), len(data.corpus))
    if wanted > natural - ALIKE:
        return random
    known = round(wanted / natural * count)
    new = _draw(relevant, max(1, count - known), "new-documents", rng)
    others = np.setdiff1d(rng.permutation(random.queries)[:known], new.queries)
    return _Draw(np.sort(np.concatenate([new.queries, others])), new.documents)


def _doubt_dev(data: RetrievalData) -> str:
    """Say why the data's own dev split does not stand for tomorrow's queries; empty where it does."""
    dev = data.split("dev")
    for split in ("train", "test"):
        shared = int(np.isin(dev.query_rows, data.split(split).relevant().query_rows).sum())
        if shared:
            return f"{shared} of its {dev.n_queries} queries are in {split} too"
    if dev.has_relevant.any() and data.split("test").has_relevant.any():
        of_dev, of_test = seen_share(data, "dev"), seen_share(data, "test")
        if of_dev - of_test > ALIKE:
            return f"train names {of_dev:.0%} of its documents, but {of_test:.0%} of test's"
    return ""


def _without_dev(data: RetrievalData, reason: str) -> RetrievalData:
    splits = {name: qrels for name, qrels in data.splits.items() if name != "dev"}
    return replace(data, splits=splits, notes=(*data.notes, f"the data's own dev split is not used: {reason}"))


def _note(data: RetrievalData, split: str, kind: SplitKind, drawn: int, of: int, seed: int) -> str:
    note = f"drew {drawn} of the {of} train queries as {split} ({kind}, seed {seed})"
    note += f"; train names {seen_share(data, split):.0%} of their documents"
    if split != "test" and "test" in data.splits and data.split("test").has_relevant.any():
        note += f", and {seen_share(data, 'test'):.0%} of test's"
    if data.held_out is not None:
        note += f"; {len(data.held_out.doc_rows)} pairs that name held-out documents left train"
    return note


def _as_in(data: RetrievalData, train: Qrels, name: str, qrels: Qrels) -> Qrels:
    """The judgements in ``data`` of the queries of ``qrels``: of its own split of that name, or drawn from train."""
    own = data.splits.get(name)
    if own is not None and name != "train" and np.array_equal(own.query_rows, qrels.query_rows):
        return own
    return train.select_queries(np.isin(train.query_rows, qrels.query_rows))
