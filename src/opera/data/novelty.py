"""How new the documents of a split are, and which queries share documents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data.pairs import TrainingPairs
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData


def seen_share(data: RetrievalData, split: str) -> float:
    """Compute the share of a split's relevant pairs whose document train names (issue 11).

    At 1 the test asks new questions about the documents of the training set; at 0 every relevant
    document is new.

    Raises:
        DataError: if the split is missing, or train has no pair.
    """
    return named_share(data.split(split), data.training_split(), len(data.corpus))


def named_share(qrels: Qrels, train: Qrels, n_documents: int) -> float:
    """Compute the share of the relevant pairs of ``qrels`` whose document is relevant in ``train``.

    Args:
        qrels: the judgements of a split.
        train: the judgements that train.
        n_documents: size of the corpus.
    """
    return float(_named(train, n_documents)[qrels.relevant().doc_rows].mean())


def recurring_share(train: Qrels) -> float:
    """Compute the share of the relevant pairs whose document another query names too (issue 23).

    It is what random queries held out of train find: how often tomorrow's queries ask about a
    document that training names, if they come as today's did. Reads nothing but train.
    """
    return float(recurring(train.relevant()).mean())


def recurring(relevant: Qrels) -> NDArray[np.bool_]:
    """Whether another query names the document of each relevant judgement too: bool ``[M]``."""
    _, index, counts = np.unique(relevant.doc_rows, return_inverse=True, return_counts=True)
    return np.asarray(counts[index] > 1)


def asks_about_known(qrels: Qrels, train: Qrels, n_documents: int) -> NDArray[np.bool_]:
    """Whether ``train`` names at least half of each query's relevant documents: bool ``[n]``.

    Args:
        qrels: the judgements of a split, each query with a relevant document.
        train: the judgements that train.
        n_documents: size of the corpus.
    """
    relevant, named = qrels.relevant(), _named(train, n_documents)
    return np.asarray(
        np.add.reduceat(named[relevant.doc_rows], relevant.offsets[:-1]) * 2
        >= np.diff(relevant.offsets)
    )


def _named(train: Qrels, n_documents: int) -> NDArray[np.bool_]:
    """Which documents ``train`` judges relevant: bool, by row of the corpus."""
    named = np.zeros(n_documents, dtype=bool)
    named[train.relevant().doc_rows] = True
    return named


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
