"""Draw the splits that a data set lacks from train; apply one data set's splits to another.

A split that stands for tomorrow's queries must be as new as they are, and only the user knows how
new that is: the setting ``future`` says it (issue 23).

- ``same-documents``: any queries, drawn at random; train goes on naming the documents it names.
- ``new-documents``: queries whose documents train does not name: whole connected components of the
  graph of queries and documents; or, where it is one piece, documents held out with every pair that
  names them.
- ``both``: half of each.
- ``like-test``: as large a part of the first as makes train name the share of the judged documents
  that it names of test's. That share is all that is read of test, and by no other kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.combined import for_each
from opera.data.novelty import named_share, query_components, recurring_share, seen_share
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData

Future = Literal["same-documents", "new-documents", "both", "like-test"]

DEV_FRACTION, LEAST_DEV, MOST_DEV, MOST_DEV_FRACTION = 0.1, 100, 1000, 0.25
"""A dev split is a tenth of train, from 100 to 1,000 queries, and never more than a quarter."""
MOST_PAIRS_LEFT_OUT = 0.3
"""Share of the training pairs that held-out documents may take with them."""
ALIKE = 0.1
"""Shares of seen documents that differ by less than this count as alike."""
MOSTLY_RECURRING = 0.5
"""If so many training pairs share their document with another query, tomorrow's are assumed to."""


def draw_missing_splits(
    data: RetrievalData,
    *,
    seed: int,
    test_fraction: float,
    needs_dev: bool = False,
    dev_fraction: float | None = None,
    future: Future | None = None,
) -> RetrievalData:
    """Draw a test split from train if there is none, then a dev split if one is needed.

    Args:
        data: the data set.
        seed: of the draws.
        test_fraction: share of the train queries that go to test.
        needs_dev: whether a dev split is needed.
        dev_fraction: share of the remaining train queries that go to dev; ``None``:
            :func:`dev_count` decides.
        future: what tomorrow's queries ask about; ``None``: :func:`assumed_future`.

    Raises:
        DataError: if train has too few queries, or if dev is to be like a test split that is
            missing, or without a relevant document.
    """
    if data.sets:
        return for_each(
            partial(
                draw_missing_splits,
                seed=seed,
                test_fraction=test_fraction,
                needs_dev=needs_dev,
                dev_fraction=dev_fraction,
                future=future,
            ),
            data,
        )
    chosen = future or assumed_future(data)
    if "test" not in data.splits:
        if chosen == "like-test":
            raise DataError(f"{data.title}: has no split 'test' to be like; pass another --future")
        if future is None:
            data = replace(data, notes=(*data.notes, _assumption(data.training_split(), chosen)))
        data = hold_out(data, "test", test_fraction, seed, chosen)
    if not needs_dev or "dev" in data.splits:
        return data
    if chosen == "like-test":
        data.judged_qrels("test")  # an error where no document of test is relevant
    return hold_out(data, "dev", dev_fraction, seed, chosen)


def assumed_future(data: RetrievalData) -> Future:
    """Say what tomorrow's queries are taken to ask about where the user does not say it.

    As new documents as the test split, where one is given; else what train alone suggests: the same
    documents where most of its pairs name one that another query names too, and new ones otherwise.
    """
    if "test" in data.splits:
        return "like-test"
    return (
        "same-documents"
        if recurring_share(data.training_split()) >= MOSTLY_RECURRING
        else "new-documents"
    )


def dev_count(n_queries: int, fraction: float | None = None) -> int:
    """Number of dev queries to draw from ``n_queries``; see :data:`DEV_FRACTION`."""
    wanted = DEV_FRACTION * n_queries
    if fraction is None:
        fraction = min(max(wanted, LEAST_DEV), MOST_DEV, MOST_DEV_FRACTION * n_queries) / n_queries
    return min(max(1, round(fraction * n_queries)), n_queries - 1)


def hold_out(
    data: RetrievalData,
    split: str,
    fraction: float | None,
    seed: int,
    future: Future = "same-documents",
) -> RetrievalData:
    """Move some of the train queries to a new split, and add a note.

    Only queries with a relevant document are drawn. At least one is drawn, and at least one stays
    in train. Training pairs that name a held-out document leave train for ``data.held_out``, and so
    do the judgements of a drawn query on documents that train goes on naming, where its others are
    held out.

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
    draw = _draw_for(data, relevant, count, future, rng)
    drawn = np.isin(np.arange(train.n_queries), candidates[draw.queries])
    moved, left = train.select_queries(drawn), train.select_queries(~drawn)
    gone = np.isin(left.doc_rows, draw.documents) & (left.grades > 0)
    of_part = np.isin(moved.query_rows[moved.query_index], relevant.query_rows[draw.judged_in_part])
    unjudged = of_part & ~np.isin(moved.doc_rows, draw.documents) & (moved.grades > 0)
    splits = {
        **data.splits,
        "train": left.select_judgements(~gone),
        split: moved.select_judgements(~unjudged),
    }
    held_out = left.select_judgements(gone).union(moved.select_judgements(unjudged))
    if data.held_out is not None:
        held_out = held_out.union(data.held_out)
    changed = replace(data, splits=splits, held_out=held_out if len(held_out.doc_rows) else None)
    note = _note(
        changed, split, future, (len(draw.queries), len(candidates), int(gone.sum())), seed
    )
    return replace(changed, notes=(*data.notes, note))


def copy_splits(data: RetrievalData, *, source: RetrievalData) -> RetrievalData:
    """Split the train queries of ``data`` as in ``source``, made from it; take its notes."""
    if data.sets:
        return for_each(lambda own, other: copy_splits(own, source=other), data, source)
    train = data.split("train")
    splits = {name: _as_in(data, train, name, qrels) for name, qrels in source.splits.items()}
    if source.held_out is not None:
        splits["train"] = splits["train"].select_judgements(
            ~source.held_out.contains(splits["train"])
        )
    return replace(data, splits=splits, held_out=source.held_out, notes=source.notes)


def _none() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class _Draw:
    """Queries to move to a new split, and documents that leave train.

    Attributes:
        queries: int64, ascending.
        documents: int64, corpus rows.
        judged_in_part: int64, those of the queries whose judgements on other documents are left
            out.
    """

    queries: NDArray[np.int64]
    documents: NDArray[np.int64] = field(default_factory=_none)
    judged_in_part: NDArray[np.int64] = field(default_factory=_none)


def _draw_for(
    data: RetrievalData, relevant: Qrels, count: int, future: Future, rng: np.random.Generator
) -> _Draw:
    """Mix queries about new documents with random ones, as ``future`` says."""
    if future == "new-documents":
        return _draw_new(relevant, count, rng)
    random = np.sort(rng.permutation(relevant.n_queries)[:count])
    known = count // 2
    if future == "like-test":
        drawn = np.isin(np.arange(relevant.n_queries), random)
        natural = named_share(
            relevant.select_queries(drawn), relevant.select_queries(~drawn), len(data.corpus)
        )
        wanted = seen_share(data, "test")
        known = count if wanted > natural - ALIKE else round(wanted / natural * count)
    if future == "same-documents" or known == count:
        return _Draw(random)
    new = _draw_new(relevant, max(1, count - known), rng)
    others = np.setdiff1d(rng.permutation(random)[:known], new.queries)
    return replace(new, queries=np.sort(np.concatenate([new.queries, others])))


def _draw_new(relevant: Qrels, count: int, rng: np.random.Generator) -> _Draw:
    """Draw queries about new documents: by components, by documents, or by rare documents alone."""
    order, most = rng.permutation(relevant.n_queries), _Draw(_none())
    for draw in (_whole_components, _documents_held_out, _rare_documents_held_out):
        found = draw(relevant, count, order)
        if len(most.queries) < len(found.queries) < relevant.n_queries:
            most = found
        if len(most.queries) >= count / 2:
            break
    if len(most.queries) == 0:  # too few documents to part train from anything
        return _Draw(np.sort(order[:count]))
    return most


def _whole_components(relevant: Qrels, count: int, order: NDArray[np.int64]) -> _Draw:
    """Fill ``count`` places with whole components, ordered by first query, but those too large."""
    component = query_components(relevant.pairs())
    sizes = np.bincount(component)
    chosen, left = np.zeros(len(sizes), dtype=bool), count
    for label in dict.fromkeys(component[order].tolist()):
        if sizes[label] <= left:
            chosen[label] = True
            left -= int(sizes[label])
    return _Draw(np.flatnonzero(chosen[component]).astype(np.int64))


def _documents_held_out(relevant: Qrels, count: int, order: NDArray[np.int64]) -> _Draw:
    """Hold out all documents of random queries, until ``count`` queries have no other documents.

    Queries are passed over whose documents would take too many pairs of other queries with them:
    more than :data:`MOST_PAIRS_LEFT_OUT` of all.
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
        others = int(pairs_of[new].sum()) - len(new)
        if others > room:
            continue
        room -= others
        held[new] = True
        for document in new:
            outside[relevant.query_index[by_document[starts[document] : starts[document + 1]]]] -= 1
        if (outside == 0).sum() >= count:
            break
    inside = np.flatnonzero(outside == 0)
    if len(inside) == relevant.n_queries:  # nothing would be left to train on
        return _Draw(inside)
    return _Draw(np.sort(order[np.isin(order, inside)][:count]), documents[held].astype(np.int64))


def _rare_documents_held_out(relevant: Qrels, count: int, order: NDArray[np.int64]) -> _Draw:
    """Hold out the rarest documents of random queries, and judge these queries by them alone.

    This is what is left where a few documents that most queries name cannot leave train: they stay,
    and a query's rank of the others is measured beside them. Each query may take its part of
    :data:`MOST_PAIRS_LEFT_OUT` of the pairs.
    """
    documents, index = np.unique(relevant.doc_rows, return_inverse=True)
    pairs_of = np.bincount(index)
    room, held, taken = (
        MOST_PAIRS_LEFT_OUT * len(index) / count,
        np.zeros(len(documents), dtype=bool),
        [],
    )
    for query in order:
        own = np.unique(index[relevant.offsets[query] : relevant.offsets[query + 1]])
        own = own[np.argsort(pairs_of[own], kind="stable")]
        own = own[np.cumsum(np.where(held[own], 0, pairs_of[own])) <= room]
        if len(own):
            held[own] = True
            taken.append(query)
        if len(taken) == count:
            break
    queries = np.sort(np.array(taken, dtype=np.int64))
    return _Draw(queries, documents[held].astype(np.int64), queries)


def _assumption(train: Qrels, future: Future) -> str:
    """Say what is assumed of tomorrow's queries without a test split, why, and how to change it."""
    same = future == "same-documents"
    assumed, other = ("these", "new") if same else ("new", "these")
    return (
        f"no test split is given: assumed that tomorrow's queries ask about {assumed} documents, "
        "since "
        f"{recurring_share(train):.0%} of the train pairs name one that another query names too; "
        "if they ask about "
        f"{other} documents, pass --future {'new-documents' if same else 'same-documents'}"
    )


def _note(
    data: RetrievalData, split: str, future: Future, counts: tuple[int, int, int], seed: int
) -> str:
    drawn, of, gone = counts
    note = f"drew {drawn} of the {of} train queries as {split} ({future}, seed {seed})"
    note += f"; train names {seen_share(data, split):.0%} of their documents"
    if future == "like-test":
        note += f", and {seen_share(data, 'test'):.0%} of test's"
    if gone:
        note += f"; {gone} pairs that name held-out documents left train"
    return note


def _as_in(data: RetrievalData, train: Qrels, name: str, qrels: Qrels) -> Qrels:
    """The judgements in ``data`` of the queries of ``qrels``: of that split or of train."""
    own = data.splits.get(name)
    if own is not None and name != "train" and np.array_equal(own.query_rows, qrels.query_rows):
        return own
    return train.select_queries(np.isin(train.query_rows, qrels.query_rows))
