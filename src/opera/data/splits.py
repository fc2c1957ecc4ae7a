"""Draw the splits that a data set lacks from train; apply one data set's splits to another.

A split that stands for tomorrow's queries must be as new as they are, and only the user knows how
new that is: the setting ``expected_documents`` says it.

- ``known``: any queries, drawn at random; train goes on naming the documents it names.
- ``new``: queries whose documents train does not name: whole connected components of the
  graph of queries and documents; or, where it is one piece, documents held out with every pair that
  names them.
- ``both``: half of each.
- ``like-test``: as large a part of the first as makes train name the share of the judged documents
  that it names of test's. That share is all that is read of test, and by no other kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.combined import each_set, first_rows, for_each, with_sets
from opera.data.identity import by_text, text_keys
from opera.data.pairs import TrainingPairs, split_keys
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData


def seen_share(data: RetrievalData, split: str) -> float:
    """Compute the share of a split's relevant pairs whose document train names.

    At 1 the test asks new questions about the documents of the training set; at 0 every relevant
    document is new.

    Raises:
        DataError: if the split is missing, or train has no pair.
    """
    return named_share(data, data.split(split), data.training_split())


def named_share(data: RetrievalData, qrels: Qrels, train: Qrels) -> float:
    """Compute the share of the relevant pairs of ``qrels`` whose document is relevant in ``train``.

    Args:
        data: the texts: a copy of a document is the same document.
        qrels: the judgements of a split.
        train: the judgements that train.
    """
    return float(named_documents(data, train)[qrels.relevant().doc_rows].mean())


def recurring_share(data: RetrievalData, train: Qrels) -> float:
    """Compute the share of the relevant pairs whose document another query names too.

    It is what random queries held out of train find: how often tomorrow's queries ask about a
    document that training names, if they come as today's did. Reads nothing but train.
    """
    return float((queries_naming(data, train.relevant()) > 1).mean())


def queries_naming(data: RetrievalData, relevant: Qrels) -> NDArray[np.int64]:
    """How many queries name the document of each relevant judgement: int64 ``[M]``."""
    _, documents = split_keys(np.unique(text_keys(data, relevant)))
    queries_of = np.bincount(documents, minlength=len(data.corpus))
    return np.asarray(queries_of[data.document_group[relevant.doc_rows]])


def asks_about_known(data: RetrievalData, qrels: Qrels, train: Qrels) -> NDArray[np.bool_]:
    """Whether ``train`` names at least half of each query's relevant documents: bool ``[n]``.

    Args:
        data: the texts: a copy of a document is the same document.
        qrels: the judgements of a split, each query with a relevant document.
        train: the judgements that train.
    """
    relevant, named = qrels.relevant(), named_documents(data, train)
    return np.asarray(
        np.add.reduceat(named[relevant.doc_rows], relevant.offsets[:-1]) * 2
        >= np.diff(relevant.offsets)
    )


def named_documents(data: RetrievalData, train: Qrels) -> NDArray[np.bool_]:
    """Which documents ``train`` judges relevant, copies included: bool, by row of the corpus."""
    named = np.zeros(len(data.corpus), dtype=bool)
    named[data.document_group[train.relevant().doc_rows]] = True
    return named[data.document_group]


def query_components(pairs: TrainingPairs) -> NDArray[np.int32]:
    """Number the components of the graph that joins queries by documents: int32 ``[n]``.

    Two queries are in one component if a chain of shared documents leads from one to the other.
    """
    from scipy.sparse import coo_array  # here, since a search needs no scipy
    from scipy.sparse.csgraph import connected_components

    documents, doc_index = np.unique(pairs.pair_doc, return_inverse=True)
    size = pairs.n_queries + len(documents)
    edges = (np.ones(pairs.n_pairs, dtype=np.int8), (pairs.pair_query, pairs.n_queries + doc_index))
    _, labels = connected_components(coo_array(edges, shape=(size, size)), directed=False)
    return np.asarray(labels[: pairs.n_queries], dtype=np.int32)


ExpectedDocuments = Literal["known", "new", "both", "like-test"]

TEST_FRACTION = 0.1
"""Share of the train queries that becomes test if the data has no such split."""
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
    test_fraction: float = TEST_FRACTION,
    needs_dev: bool = False,
    dev_fraction: float | None = None,
    expected_documents: ExpectedDocuments | None = None,
) -> RetrievalData:
    """Draw a test split from train if there is none, then a dev split if one is needed.

    Args:
        data: the data set.
        seed: of the draws.
        test_fraction: share of the train queries that go to test.
        needs_dev: whether a dev split is needed.
        dev_fraction: share of the remaining train queries that go to dev; ``None``:
            :func:`dev_count` decides.
        expected_documents: what future queries ask about; ``None``: :func:`assumed_documents`.

    Raises:
        DataError: if train has too few queries, or if dev is to be like a test split that is
            missing, or without a relevant document.
    """

    expected = {part.name: expected_documents or assumed_documents(part) for part in each_set(data)}

    def draw_test(part: RetrievalData) -> RetrievalData:
        if "test" in part.splits:
            return part
        chosen = expected[part.name]
        if chosen == "like-test":
            raise DataError(
                f"{part.title}: has no split 'test' to be like; pass another --expected-documents"
            )
        if expected_documents is None:
            part = replace(part, notes=(*part.notes, _assumption(part, chosen)))
        return hold_out(part, "test", test_fraction, seed, chosen)

    def draw_dev(part: RetrievalData) -> RetrievalData:
        if "dev" in part.splits:
            return part
        if expected[part.name] == "like-test":
            part.judged_qrels("test")  # an error where no document of test is relevant
        return hold_out(part, "dev", dev_fraction, seed, expected[part.name])

    for draw in (draw_test, draw_dev) if needs_dev else (draw_test,):
        drawn = for_each(draw, data)
        data = _without_texts_of_other_sets(drawn, data) if data.sets else drawn
    return data


def _without_texts_of_other_sets(data: RetrievalData, before: RetrievalData) -> RetrievalData:
    """Hold out the training pairs whose texts another data set needs for a split that was drawn.

    These are pairs with a query of the split, or with a relevant document of it that the train
    split of the same set does not name.

    Args:
        data: several data sets, with drawn splits.
        before: the same without them.
    """
    query_rows, document_rows = first_rows(data)
    query_group = np.split(data.query_group, query_rows[1:-1])
    document_group = np.split(data.document_group, document_rows[1:-1])
    split_queries, new_documents = [], []
    for number, (part, old) in enumerate(zip(data.sets, before.sets, strict=True)):
        splits = [part.splits[name] for name in part.splits.keys() - old.splits.keys()]
        queries = [query_group[number][split.query_rows] for split in splits]
        documents = [document_group[number][split.relevant().doc_rows] for split in splits]
        trained = document_group[number][part.split("train").relevant().doc_rows]
        empty = np.empty(0, dtype=np.int32)
        split_queries.append(np.concatenate([empty, *queries]))
        new_documents.append(np.setdiff1d(np.concatenate([empty, *documents]), trained))

    def hold_out_copies(part: RetrievalData, number: int) -> RetrievalData:
        others = [other for other in range(len(data.sets)) if other != number]
        queries = np.concatenate([split_queries[other] for other in others])
        documents = np.concatenate([new_documents[other] for other in others])
        train = part.split("train")
        gone = np.isin(query_group[number][train.query_rows], queries)[train.query_index]
        gone |= np.isin(document_group[number][train.doc_rows], documents)
        gone &= train.grades > 0
        if not gone.any():
            return part
        note = f"{gone.sum():,} pairs whose query or document another data set holds out left train"
        part = part.hold_out_pairs(train.select_judgements(gone))
        return replace(part, notes=(*part.notes, note))

    return with_sets(data, [hold_out_copies(part, n) for n, part in enumerate(data.sets)])


def assumed_documents(data: RetrievalData) -> ExpectedDocuments:
    """Say what tomorrow's queries are taken to ask about where the user does not say it.

    As new documents as the test split, where one is given; else what train alone suggests: the same
    documents where most of its pairs name one that another query names too, and new ones otherwise.
    """
    if "test" in data.splits:
        return "like-test"
    return "known" if recurring_share(data, data.training_split()) >= MOSTLY_RECURRING else "new"


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
    expected_documents: ExpectedDocuments = "known",
) -> RetrievalData:
    """Move some of the train queries to a new split, and add a note.

    Only queries with a relevant document are drawn. At least one is drawn, and at least one stays
    in train. Training pairs that name a held-out document leave train for ``data.held_out``. If a
    drawn query has held-out documents, its judgements of documents that stay in train leave too.
    All queries, and all documents, with the same text go the same way.

    Raises:
        DataError: if train has fewer than two queries with a relevant document.
    """
    full_train = train = data.split("train")
    relevant = by_text(data, train.relevant())
    if relevant.n_queries < 2:
        few = f"{relevant.n_queries} train queries are too few to draw one"
        advice = "; the guard needs one, so pass guard=false" if split == "dev" else ""
        raise DataError(f"{data.title}: has no split '{split}', and {few}{advice}")
    count = dev_count(relevant.n_queries, fraction)
    rng = generator(seed, f"data.{split}")
    new, documents, known = _drawn(data, relevant, count, expected_documents, rng)
    queries = np.union1d(new, known)
    query_group, document_group = data.query_group, data.document_group
    drawn = np.isin(query_group[train.query_rows], relevant.query_rows[queries])
    moved, left = train.select_queries(drawn), train.select_queries(~drawn)
    gone = np.isin(document_group[left.doc_rows], documents) & (left.grades > 0)
    unjudged = np.zeros(len(moved.doc_rows), dtype=bool)
    if len(documents):
        of_new = np.isin(query_group[moved.query_rows], relevant.query_rows[new])
        unjudged = ~np.isin(document_group[moved.doc_rows], documents) & (moved.grades > 0)
        unjudged &= of_new[moved.query_index]
    held_out = left.select_judgements(gone).union(moved.select_judgements(unjudged))
    moved = moved.select_judgements(~unjudged)
    data = replace(data, splits={**data.splits, "train": left, split: moved})
    data = data.hold_out_pairs(held_out)
    counts = moved.relevant().n_queries, full_train.relevant().n_queries
    note = f"drew {counts[0]} of the {counts[1]} train queries as {split} ({expected_documents}, "
    note += (
        f"seed {seed}); {(seen := seen_share(data, split)):.0%} of their documents stay in train"
    )
    if expected_documents == "like-test":
        note += f", which had {named_share(data, data.split('test'), full_train):.0%} of test's"
    elif expected_documents == "known" and seen < 1:
        note += ": no query left in train asks about the rest"
    if gone.any():
        note += f"; {gone.sum()} pairs that name held-out documents left train"
    return replace(data, notes=(*data.notes, note))


def copy_splits(data: RetrievalData, *, source: RetrievalData) -> RetrievalData:
    """Split the train queries of ``data`` as in ``source``, made from it; take its notes."""

    def split_as(part: RetrievalData, other: RetrievalData) -> RetrievalData:
        train, splits = part.split("train"), dict(part.splits)
        for name, qrels in other.splits.items():
            same = name in splits and np.array_equal(splits[name].query_rows, qrels.query_rows)
            if name == "train" or not same:
                splits[name] = train.select_queries(np.isin(train.query_rows, qrels.query_rows))
        if other.held_out is not None:
            gone = other.held_out.contains(splits["train"])
            splits["train"] = splits["train"].select_judgements(~gone)
        return replace(part, splits=splits, held_out=other.held_out, notes=other.notes)

    return for_each(split_as, data, source)


Rows = NDArray[np.int64]


def _drawn(
    data: RetrievalData,
    relevant: Qrels,
    count: int,
    expected_documents: ExpectedDocuments,
    rng: np.random.Generator,
) -> tuple[Rows, Rows, Rows]:
    """Mix queries about new documents with random ones, as ``expected_documents`` says.

    Returns:
        Queries about new documents; the corpus rows that are held out for them; and other queries.
    """
    none = np.empty(0, dtype=np.int64)
    if expected_documents == "new":
        return *_new(relevant, count, rng), none
    random, known = np.sort(rng.permutation(relevant.n_queries)[:count]), count // 2
    if expected_documents == "like-test":
        drawn = np.isin(np.arange(relevant.n_queries), random)
        natural = named_share(data, relevant.select_queries(drawn), relevant.select_queries(~drawn))
        wanted = seen_share(data, "test")
        known = count if wanted > natural - ALIKE else round(wanted / natural * count)
    if expected_documents == "known" or known == count:
        return none, none, random
    new, documents = _new(relevant, max(1, count - known), rng)
    return new, documents, np.setdiff1d(rng.permutation(random)[:known], new)


def _new(relevant: Qrels, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw queries about new documents, and the documents that are held out for them.

    By components of the graph; where these are too few queries, by documents, or by rare documents
    alone.
    """
    order = rng.permutation(relevant.n_queries)
    most: tuple[Rows, Rows] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    for draw in (_whole_components, _documents_held_out, _rare_documents_held_out):
        picked = draw(relevant, count, order)
        if len(most[0]) < len(picked[0]) < relevant.n_queries:
            most = picked
        if len(most[0]) >= count / 2:
            break
    if len(most[0]) == 0:  # too few documents to part train from anything
        return np.sort(order[:count]), most[1]
    return most


def _whole_components(relevant: Qrels, count: int, order: Rows) -> tuple[Rows, Rows]:
    """Fill ``count`` places with whole components, ordered by first query, but those too large."""
    component = query_components(relevant.pairs())
    sizes, chosen = np.bincount(component).tolist(), []
    for label in dict.fromkeys(component[order].tolist()):
        if sizes[label] <= count:
            chosen.append(label)
            count -= sizes[label]
    return np.flatnonzero(np.isin(component, chosen)), np.empty(0, dtype=np.int64)


def _documents_held_out(relevant: Qrels, count: int, order: Rows) -> tuple[Rows, Rows]:
    """Hold out all documents of random queries, until ``count`` queries have no other documents.

    Queries are passed over whose documents would take too many pairs of other queries with them:
    more than :data:`MOST_PAIRS_LEFT_OUT` of all.
    """
    documents, index = np.unique(relevant.doc_rows, return_inverse=True)
    pairs_of = np.bincount(index)
    outside = np.diff(relevant.offsets).copy()  # documents of each query that are not held out
    queries_of = np.split(
        relevant.query_index[np.argsort(index, kind="stable")], np.cumsum(pairs_of)
    )
    held, room = np.zeros(len(documents), dtype=bool), MOST_PAIRS_LEFT_OUT * len(index)
    n_inside = 0
    for query in order:
        pairs = index[relevant.offsets[query] : relevant.offsets[query + 1]]
        new = pairs[~held[pairs]]
        others = int(pairs_of[new].sum()) - len(new)
        if others > room:
            continue
        room -= others
        held[new] = True
        for document in new:
            outside[queries_of[document]] -= 1
            n_inside += int((outside[queries_of[document]] == 0).sum())
        if n_inside >= count:
            break
    inside = np.flatnonzero(outside == 0)
    if len(inside) < relevant.n_queries:  # else nothing would be left to train on
        inside = np.sort(order[np.isin(order, inside)][:count])
    return inside, documents[held].astype(np.int64)


def _rare_documents_held_out(relevant: Qrels, count: int, order: Rows) -> tuple[Rows, Rows]:
    """Hold out the rarest documents of random queries, and judge these queries by them alone.

    This is what is left where a few documents that most queries name cannot leave train: they stay,
    and a query's rank of the others is measured beside them. Each query may take its part of
    :data:`MOST_PAIRS_LEFT_OUT` of the pairs.
    """
    documents, index = np.unique(relevant.doc_rows, return_inverse=True)
    pairs_of, room = np.bincount(index), MOST_PAIRS_LEFT_OUT * len(index) / count
    held, taken = np.zeros(len(documents), dtype=bool), []
    for query in order:
        pairs = index[relevant.offsets[query] : relevant.offsets[query + 1]]
        pairs = pairs[np.argsort(pairs_of[pairs], kind="stable")]
        pairs = pairs[np.cumsum(np.where(held[pairs], 0, pairs_of[pairs])) <= room]
        if len(pairs):
            held[pairs] = True
            taken.append(query)
        if len(taken) == count:
            break
    return np.sort(np.array(taken, dtype=np.int64)), documents[held].astype(np.int64)


def _assumption(data: RetrievalData, expected_documents: ExpectedDocuments) -> str:
    """Say what is assumed of tomorrow's queries without a test split, why, and how to change it."""
    same, shared = expected_documents == "known", recurring_share(data, data.training_split())
    assumed, other = ("these", "new") if same else ("new", "these")
    return (
        f"no test split is given: assumed that tomorrow's queries ask about {assumed} documents, "
        "since "
        f"{shared:.0%} of the train pairs name one that another query names too; "
        "if they ask about "
        f"{other} documents, pass --expected-documents {'new' if same else 'known'}"
    )
