"""Split missing dev and test queries off train; apply one data set's splits to another.

A split must have as many new documents as future queries will have. Only the user knows how many,
and says so with the setting ``expected_documents``. A document is known if it is relevant to a
train query.

- ``known``: random queries. Their documents mostly stay known.
- ``new``: queries about new documents. OPERA moves whole connected components of the graph of
  queries and documents. If there are too few components, it holds out documents with all of their
  pairs.
- ``both``: half of each.
- ``like-test``: a mix whose fraction of known documents is that of test. OPERA reads nothing else
  of test, and reads it only for this value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import distinct_numbers, is_among
from opera.core.errors import DataError
from opera.core.rng import generator, order_of_texts
from opera.core.terminal import counted
from opera.data.copies import by_text, text_keys
from opera.data.mixture import Mixture
from opera.data.new_documents import DocRows, QueryIndices, queries_about_new_documents
from opera.data.pairs import split_keys
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData


def known_fraction(data: RetrievalData, split: str) -> float:
    """Compute the fraction of a split's relevant pairs whose document is known.

    At 1 the split asks new questions about documents of train. At 0 every relevant document is new.

    Raises:
        DataError: if the split is missing, or train has no pair.
    """
    return known_fraction_of(data, data.split(split), data.training_split())


def known_fraction_of(data: RetrievalData, qrels: Qrels, train: Qrels) -> float:
    """Compute the fraction of relevant pairs in ``qrels`` whose document is relevant in ``train``.

    Args:
        data: the data set. A copy of a document counts as the same document.
        qrels: the judgements of a split.
        train: the judgements of train.
    """
    return float(known_documents(data, train)[qrels.relevant().doc_rows].mean())


def recurring_fraction(data: RetrievalData, train: Qrels) -> float:
    """Compute the fraction of relevant pairs whose document is relevant to another query too.

    It estimates how often future queries ask about a known document, if they are like the train
    queries. It reads only train.
    """
    return float((queries_per_document(data, train.relevant()) > 1).mean())


def queries_per_document(data: RetrievalData, relevant: Qrels) -> NDArray[np.int64]:
    """How many queries have the document of each relevant judgement as relevant: int64 ``[M]``."""
    _, document_groups = split_keys(distinct_numbers(text_keys(data, relevant)))
    queries_of = np.bincount(document_groups, minlength=len(data.corpus))
    return np.asarray(queries_of[data.document_group[relevant.doc_rows]])


def asks_about_known(data: RetrievalData, qrels: Qrels, train: Qrels) -> NDArray[np.bool_]:
    """Whether ``train`` has at least half of each query's relevant documents: bool ``[n]``.

    Args:
        data: the data set. A copy of a document counts as the same document.
        qrels: the judgements of a split. Every query has a relevant document.
        train: the judgements of train.
    """
    relevant, is_known = qrels.relevant(), known_documents(data, train)
    return np.asarray(
        np.add.reduceat(is_known[relevant.doc_rows], relevant.offsets[:-1]) * 2
        >= np.diff(relevant.offsets)
    )


def known_documents(data: RetrievalData, train: Qrels) -> NDArray[np.bool_]:
    """Whether each document, or a copy, is relevant in ``train``: bool, by row of the corpus."""
    is_known = np.zeros(len(data.corpus), dtype=bool)
    is_known[data.document_group[train.relevant().doc_rows]] = True
    return is_known[data.document_group]


ExpectedDocuments = Literal["known", "new", "both", "like-test"]

TEST_FRACTION = 0.1
"""The fraction of the train queries that becomes test if the data have no such split."""
DEV_FRACTION, LEAST_DEV, MOST_DEV, MOST_DEV_FRACTION = 0.1, 100, 1000, 0.25
"""A dev split is a tenth of train, from 100 to 1,000 queries, but never more than a quarter."""
ALIKE = 0.1
"""Fractions of known documents that differ by less are considered equal."""
MOSTLY_RECURRING = 0.5
"""OPERA expects known documents if :func:`recurring_fraction` is at least this."""


def draw_missing_splits(
    mixture: Mixture,
    *,
    seed: int,
    test_fraction: float = TEST_FRACTION,
    needs_dev: bool = False,
    dev_fraction: float | None = None,
    expected_documents: ExpectedDocuments | None = None,
) -> Mixture:
    """Split test queries off train if there is no test split, then dev queries if needed.

    Args:
        mixture: the data sets.
        seed: the seed of the random splits.
        test_fraction: the fraction of the train queries that go to test.
        needs_dev: whether a dev split is needed.
        dev_fraction: the fraction of the remaining train queries that go to dev; ``None``:
            :func:`held_out_count` decides.
        expected_documents: the documents that future queries ask about; ``None``:
            :func:`assumed_documents`.

    Raises:
        DataError: if train has too few queries, or if dev is to be like test, but test is missing
            or has no relevant document.
    """
    expected = [expected_documents or assumed_documents(data_set) for data_set in mixture.data_sets]
    fractions = {"test": test_fraction, "dev": dev_fraction}
    for split in ("test", "dev") if needs_dev else ("test",):
        drawn = mixture.with_data_sets(
            [
                _with_split(
                    data_set, split, fractions[split], seed, chosen, expected_documents is None
                )
                for data_set, chosen in zip(mixture.data_sets, expected, strict=True)
            ]
        )
        mixture = drawn if mixture.is_single else _without_texts_of_other_sets(drawn, mixture)
    return mixture


def _with_split(
    data: RetrievalData,
    split: str,
    fraction: float | None,
    seed: int,
    expected_documents: ExpectedDocuments,
    is_assumed: bool,
) -> RetrievalData:
    """Split queries off train, unless the data have the split."""
    if split in data.splits:
        return data
    if split == "test" and expected_documents == "like-test":
        raise DataError(
            f"{data.title}: has no split 'test', which --expected-documents like-test needs; pass "
            "another value"
        )
    if split == "test" and is_assumed:
        data = replace(data, notes=(*data.notes, _assumption(data, expected_documents)))
    if expected_documents == "like-test":
        data.judged_qrels("test")  # raises an error if test has no relevant document
    keeps_queries = split == "test"  # the measures of two exports are comparable
    return hold_out(data, split, fraction, seed, expected_documents, keeps_queries)


def _without_texts_of_other_sets(mixture: Mixture, before: Mixture) -> Mixture:
    """Hold out the training pairs with a text that is new in a split of another data set.

    Such a pair has the text of a query of the split, or the text of a relevant document that is new
    in its data set.

    Args:
        mixture: several data sets, with added splits.
        before: the same data sets before the split.
    """
    first_query_rows, first_doc_rows = zip(*mixture.first_rows, strict=True)
    sets = list(
        zip(
            mixture.data_sets,
            before.data_sets,
            np.split(mixture.joined.query_group, first_query_rows[1:]),
            np.split(mixture.joined.document_group, first_doc_rows[1:]),
            strict=True,
        )
    )
    held_out = []  # the groups of the queries of the added splits, and of their new documents
    for data_set, old, query_group, document_group in sets:
        added = [data_set.splits[name] for name in data_set.splits.keys() - old.splits.keys()]
        query_groups = [group for split in added for group in query_group[split.query_rows]]
        doc_rows = [doc_row for split in added for doc_row in split.relevant().doc_rows]
        trained = document_group[data_set.split("train").relevant().doc_rows]
        new_groups = document_group[doc_rows]
        held_out.append((query_groups, new_groups[~is_among(new_groups, trained)]))
    changed = []
    for set_number, (data_set, _, query_group, document_group) in enumerate(sets):
        train, others = data_set.split("train"), held_out[:set_number] + held_out[set_number + 1 :]
        leaves = np.zeros(len(train.doc_rows), dtype=bool)
        for query_groups, new_document_groups in others:
            leaves |= np.isin(query_group[train.query_rows], query_groups)[train.query_index]
            leaves |= np.isin(document_group[train.doc_rows], new_document_groups)
        leaves &= train.grades > 0
        if leaves.any():
            pairs = counted(int(leaves.sum()), "pair")
            note = f"removed {pairs} from train whose query or document another data set holds out"
            data_set = data_set.hold_out_pairs(train.select_judgements(leaves))
            data_set = replace(data_set, notes=(*data_set.notes, note))
        changed.append(data_set)
    return mixture.with_data_sets(changed)


def assumed_documents(data: RetrievalData) -> ExpectedDocuments:
    """Return the default of ``expected_documents``.

    With a test split it is ``like-test``. Otherwise it is ``known`` if most training pairs share
    their document with another query, and ``new`` if not.
    """
    if "test" in data.splits:
        return "like-test"
    return "known" if recurring_fraction(data, data.training_split()) >= MOSTLY_RECURRING else "new"


def held_out_count(n_queries: int, fraction: float | None = None) -> int:
    """The number of queries to split off ``n_queries``; see :data:`DEV_FRACTION`."""
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
    keeps_queries: bool = False,
) -> RetrievalData:
    """Move some train queries to a new split, and add a note.

    Only queries with a relevant document move. At least one moves, and at least one stays in train.
    Training pairs with a held-out document move to ``data.held_out``. If a moved query has held-out
    documents, its judgements of other documents move there too. Queries, or documents, with the
    same text stay together. With ``keeps_queries``, a new export of the same data, with other ids
    or more rows, gets nearly the same split.

    Raises:
        DataError: if train has fewer than two queries with a relevant document.
    """
    full_train = train = data.split("train")
    relevant = by_text(data, train.relevant())
    if relevant.n_queries < 2:
        queries = counted(relevant.n_queries, "train query")
        advice = "; the guard needs one, so pass guard=false" if split == "dev" else ""
        raise DataError(
            f"{data.title}: has no split '{split}', and {queries} with a relevant document cannot "
            f"be split{advice}"
        )
    count = held_out_count(relevant.n_queries, fraction)
    random_order = _random_orders(data, relevant, seed, f"data.{split}", keeps_queries)
    new, new_doc_rows, random = _choose_queries(
        data, relevant, count, expected_documents, random_order
    )
    query_group, document_group = data.query_group, data.document_group
    moves = np.isin(query_group[train.query_rows], relevant.query_rows[np.union1d(new, random)])
    moved, left = train.select_queries(moves), train.select_queries(~moves)
    leaves = np.isin(document_group[left.doc_rows], new_doc_rows) & (left.grades > 0)
    unjudged = np.zeros(len(moved.doc_rows), dtype=bool)
    if len(new_doc_rows):
        is_new = np.isin(query_group[moved.query_rows], relevant.query_rows[new])
        unjudged = ~np.isin(document_group[moved.doc_rows], new_doc_rows) & (moved.grades > 0)
        unjudged &= is_new[moved.query_index]
    held_out = left.select_judgements(leaves).union(moved.select_judgements(unjudged))
    moved = moved.select_judgements(~unjudged)
    data = replace(data, splits={**data.splits, "train": left, split: moved})
    data = data.hold_out_pairs(held_out)
    counts = moved.relevant().n_queries, full_train.relevant().n_queries
    note = f"moved {counts[0]} of the {counts[1]} train queries to {split} ({expected_documents}, "
    note += f"seed {seed}); {known_fraction(data, split):.0%} of their documents are known"
    if expected_documents == "like-test":
        note += f", like {known_fraction_of(data, data.split('test'), full_train):.0%} in test"
    if leaves.any():
        note += f"; removed {counted(int(leaves.sum()), 'pair')} with held-out documents from train"
    return replace(data, notes=(*data.notes, note))


def is_detail(note: str) -> bool:
    """Whether a note says how a split was drawn, which the counts of the splits show as well."""
    return " train queries to " in note


def copy_splits(data: RetrievalData, source: RetrievalData) -> RetrievalData:
    """Split the judgements of ``data`` as in ``source``, and copy its notes.

    ``source`` is an earlier version of ``data`` with more splits. A drawn split comes from train.
    """
    splits = {}
    for name, qrels in source.splits.items():
        original = data.split(name if name in data.splits else "train")
        splits[name] = original.select_judgements(qrels.contains(original))
    return replace(data, splits=splits, held_out=source.held_out, notes=source.notes)


def _choose_queries(
    data: RetrievalData,
    relevant: Qrels,
    count: int,
    expected_documents: ExpectedDocuments,
    random_order: Callable[[], QueryIndices],
) -> tuple[QueryIndices, DocRows, QueryIndices]:
    """Choose a mix of random queries and queries about new documents.

    Returns:
        Queries about new documents; the documents held out for them; and random queries.
    """
    none = np.empty(0, dtype=np.int64)
    if expected_documents == "new":
        return *queries_about_new_documents(relevant, count, random_order()), none
    order, n_known = random_order(), count // 2
    random = np.sort(order[:count])
    if expected_documents == "like-test":
        moves = np.isin(np.arange(relevant.n_queries), random)
        known_at_random = known_fraction_of(
            data, relevant.select_queries(moves), relevant.select_queries(~moves)
        )
        target = known_fraction(data, "test")
        is_alike = target > known_at_random - ALIKE
        n_known = count if is_alike else round(target / known_at_random * count)
    if expected_documents == "known" or n_known == count:
        return none, none, random
    new, held_out = queries_about_new_documents(relevant, max(1, count - n_known), random_order())
    return new, held_out, np.sort(order[~np.isin(order, new)][:n_known])


def _random_orders(
    data: RetrievalData, relevant: Qrels, seed: int, name: str, keeps_queries: bool
) -> Callable[[], QueryIndices]:
    """Return a function whose results are random orders of the relevant queries."""
    if keeps_queries:
        digests = data.queries.digests[relevant.query_rows]
        return lambda: order_of_texts(digests, seed, name)
    rng = generator(seed, name)
    return lambda: rng.permutation(relevant.n_queries)


def _assumption(data: RetrievalData, expected_documents: ExpectedDocuments) -> str:
    """The note on the default of ``expected_documents``: its value, the reason, and the option."""
    recurring = recurring_fraction(data, data.training_split())
    alternative = "new" if expected_documents == "known" else "known"
    return (
        f"no test split is given, so OPERA expects future queries about {expected_documents} "
        f"documents ({recurring:.0%} of the train pairs share their document with another query); "
        f"for {alternative} documents, pass --expected-documents {alternative}"
    )
