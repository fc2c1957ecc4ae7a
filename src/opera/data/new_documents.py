"""Choose queries whose relevant documents are new once the queries have left train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data.pairs import TrainingPairs
from opera.data.qrels import Qrels

MOST_PAIRS_LEFT_OUT = 0.3
"""The fraction of the training pairs that may leave train with held-out documents."""
QueryIndices = NDArray[np.int64]
"""Numbers of queries in the relevant pairs by text, see :func:`opera.data.copies.by_text`."""
DocRows = NDArray[np.int64]


def queries_about_new_documents(
    relevant: Qrels, count: int, order: QueryIndices
) -> tuple[QueryIndices, DocRows]:
    """Choose queries about new documents, and the documents that are held out for them.

    Queries come in a random ``order``. Try components of the graph first. If they give too few
    queries, hold out all documents of queries, or only their rare documents.
    """
    query_indices, doc_rows = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for choose in (_whole_components, _documents_held_out, _rare_documents_held_out):
        more_query_indices, their_doc_rows = choose(relevant, count, order)
        if len(query_indices) < len(more_query_indices) < relevant.n_queries:
            query_indices, doc_rows = more_query_indices, their_doc_rows
        if len(query_indices) >= count / 2:
            break
    if len(query_indices) == 0:  # too few documents: fall back to random queries
        return np.sort(order[:count]), doc_rows
    return query_indices, doc_rows


def _whole_components(
    relevant: Qrels, count: int, order: QueryIndices
) -> tuple[QueryIndices, DocRows]:
    """Choose components in random order until there are ``count`` queries; skip large ones."""
    component = _query_components(relevant.pairs())
    sizes, chosen = np.bincount(component).tolist(), []
    for label in dict.fromkeys(component[order].tolist()):
        if sizes[label] <= count:
            chosen.append(label)
            count -= sizes[label]
    return np.flatnonzero(np.isin(component, chosen)), np.empty(0, dtype=np.int64)


def _documents_held_out(
    relevant: Qrels, count: int, order: QueryIndices
) -> tuple[QueryIndices, DocRows]:
    """Hold out all documents of random queries, until ``count`` queries have no other documents.

    Skip a query if its documents would remove too many pairs of other queries, more than
    :data:`MOST_PAIRS_LEFT_OUT` of all pairs.
    """
    doc_rows, doc_positions = np.unique(relevant.doc_rows, return_inverse=True)  # of each pair
    pairs_of = np.bincount(doc_positions)
    remaining = np.diff(relevant.offsets).copy()  # documents of each query that are not held out
    queries_of = np.split(
        relevant.query_index[np.argsort(doc_positions, kind="stable")], np.cumsum(pairs_of)
    )
    is_held_out = np.zeros(len(doc_rows), dtype=bool)
    budget, n_chosen = MOST_PAIRS_LEFT_OUT * len(doc_positions), 0
    for query_index in order:
        positives = doc_positions[relevant.offsets[query_index] : relevant.offsets[query_index + 1]]
        new = positives[~is_held_out[positives]]
        pairs_of_others = int(pairs_of[new].sum()) - len(new)
        if pairs_of_others > budget:
            continue
        budget -= pairs_of_others
        is_held_out[new] = True
        for doc_position in new:
            remaining[queries_of[doc_position]] -= 1
            n_chosen += int((remaining[queries_of[doc_position]] == 0).sum())
        if n_chosen >= count:
            break
    chosen = np.flatnonzero(remaining == 0)
    if len(chosen) < relevant.n_queries:  # otherwise nothing would be left to train on
        chosen = np.sort(order[np.isin(order, chosen)][:count])
    return chosen, doc_rows[is_held_out].astype(np.int64)


def _rare_documents_held_out(
    relevant: Qrels, count: int, order: QueryIndices
) -> tuple[QueryIndices, DocRows]:
    """Hold out the rarest documents of random queries, and judge the queries only by them.

    This is the last resort if most queries share a few documents. These documents stay in train.
    Every query may remove an equal part of :data:`MOST_PAIRS_LEFT_OUT` of the pairs.
    """
    doc_rows, doc_positions = np.unique(relevant.doc_rows, return_inverse=True)  # of each pair
    pairs_of, budget = np.bincount(doc_positions), MOST_PAIRS_LEFT_OUT * len(doc_positions) / count
    is_held_out, chosen = np.zeros(len(doc_rows), dtype=bool), []
    for query_index in order:
        rarest = doc_positions[relevant.offsets[query_index] : relevant.offsets[query_index + 1]]
        rarest = rarest[np.argsort(pairs_of[rarest], kind="stable")]
        rarest = rarest[np.cumsum(np.where(is_held_out[rarest], 0, pairs_of[rarest])) <= budget]
        if len(rarest):
            is_held_out[rarest] = True
            chosen.append(query_index)
        if len(chosen) == count:
            break
    return np.sort(np.array(chosen, dtype=np.int64)), doc_rows[is_held_out].astype(np.int64)


def _query_components(pairs: TrainingPairs) -> NDArray[np.int32]:
    """Number the connected components of the graph of queries and documents: int32 ``[n]``.

    Two queries are in one component if a chain of shared documents connects them.
    """
    from scipy.sparse import coo_array  # slow to import, and a search does not need it
    from scipy.sparse.csgraph import connected_components

    doc_rows, doc_numbers = np.unique(pairs.pair_doc, return_inverse=True)
    size = pairs.n_queries + len(doc_rows)
    edges = pairs.pair_query, pairs.n_queries + doc_numbers
    graph = coo_array((np.ones(pairs.n_pairs, dtype=np.int8), edges), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return np.asarray(labels[: pairs.n_queries], dtype=np.int32)
