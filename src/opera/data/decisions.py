"""What a person, or another judge, decided about labels: which pairs are wrong, which are correct
and which documents lack a label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.errors import DataError
from opera.core.terminal import counted, shown
from opera.data.combined import each_set, first_rows, moved, with_sets
from opera.data.identity import text_keys
from opera.data.pair_files import read_list, read_pairs
from opera.data.pairs import pair_keys
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData

WRONG, CORRECT, MISSING = DECISIONS = ("wrong", "correct", "missing")
UNDECIDED = ("", "unsure")
CHANGED = ("train", "dev")
"""The splits that decisions change; those of test are for the figures alone."""
OTHER_DATA = "are they decisions about another data set?"


@dataclass(frozen=True)
class Decisions:
    """Decided pairs, by their texts: a copy of a pair is decided with it.

    Attributes:
        query_rows: int64 ``[m]``, rows of the query table.
        doc_rows: int64 ``[m]``, rows of the corpus.
        kinds: str ``[m]``, of :data:`DECISIONS`.
        of_test: bool ``[m]``, whether it is about the test split.
        paths: the files, for messages.
    """

    query_rows: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    kinds: NDArray[np.str_]
    of_test: BoolArray
    paths: str

    def select(self, chosen: BoolArray) -> Decisions:
        """Keep some of the pairs."""
        return Decisions(
            self.query_rows[chosen], self.doc_rows[chosen], self.kinds[chosen],
            self.of_test[chosen], self.paths,
        )  # fmt: skip

    def keys(self, data: RetrievalData, *kinds: str) -> NDArray[np.int64]:
        """One number per pair of some kinds, as :func:`opera.data.identity.text_keys` gives it."""
        chosen = self.select(np.isin(self.kinds, kinds))
        return pair_keys(data.query_group[chosen.query_rows], data.document_group[chosen.doc_rows])


def read_decisions(data: RetrievalData, paths: Iterable[str | Path]) -> Decisions:
    """Read files of decisions, such as ``decisions.csv`` of a review.

    Args:
        data: the data set that they are about.
        paths: tables with the columns ``query_id``, ``doc_id`` and ``decision``: wrong, correct,
            missing, or nothing. Without that column, as in a run's ``suspicious_pairs.csv``, all
            are wrong. ``split`` is test for decisions about the test split. Where they have
            ``query`` or ``document`` these must be the data's texts, or begin them.

    Raises:
        DataError: for a file that cannot be read or is of other data, another decision, or two
            that contradict each other.
    """
    files = [Path(path) for path in paths]
    lists = [
        read_pairs(path, data, OTHER_DATA, (), ("query", "document", "decision", "split"))
        for path in files
    ]
    decided = [_kinds(path, pairs.values) for path, pairs in zip(files, lists, strict=True)]
    every = Decisions(
        np.concatenate([pairs.query_rows for pairs in lists]),
        np.concatenate([pairs.doc_rows for pairs in lists]),
        np.concatenate([kinds for kinds, _ in decided]),
        np.concatenate([of_test for _, of_test in decided]),
        ", ".join(map(str, files)),
    )
    every = every.select(every.kinds != "")
    keys = every.keys(data, *DECISIONS)
    order = np.lexsort((every.kinds, every.of_test, keys))
    same = (np.diff(keys[order]) == 0) & (np.diff(every.of_test[order].astype(int)) == 0)
    contradicts = same & (every.kinds[order][1:] != every.kinds[order][:-1])
    if contradicts.any():
        first, second = order[np.flatnonzero(contradicts)[0] :][:2]
        raise DataError(
            f"{every.paths}: {_pair(data, every, first)} is {every.kinds[first]} and "
            f"{every.kinds[second]}; leave one of the two"
        )
    return every.select(np.isin(np.arange(len(keys)), order[np.append(True, ~same)[: len(order)]]))


def read_test_decisions(paths: Iterable[str | Path]) -> dict[tuple[str, str], str]:
    """Read the decisions about the test split in files of decisions, without the data.

    Args:
        paths: tables, as :func:`read_decisions` takes them. Decisions about train are left out.

    Returns:
        The decision by query id and document id.

    Raises:
        DataError: for a file that cannot be read, another decision, two that contradict each other,
            and files without a decision about test.
    """
    decided: dict[tuple[str, str], str] = {}
    files = [Path(path) for path in paths]
    for path in files:
        listed = read_list(path, (), ("decision", "split")).to_pydict()
        kinds, of_test = _kinds(path, listed)
        pairs = list(zip(listed["query_id"], listed["doc_id"], strict=True))
        for place in np.flatnonzero((kinds != "") & of_test):
            pair, kind = pairs[place], str(kinds[place])
            if decided.setdefault(pair, kind) != kind:
                raise DataError(
                    f"{path}: {_named(*pair)} is {decided[pair]} and {kind}; leave one of the two"
                )
    if not decided:
        raise DataError(
            f"{', '.join(map(str, files))}: holds no decision about test; opera review RUN --split "
            "test makes a page to decide"
        )
    return decided


def _kinds(path: Path, values: Mapping[str, list[str]]) -> tuple[NDArray[np.str_], BoolArray]:
    """The decision of each listed pair, empty where none was made, and whether it is about test."""
    count = len(values["query_id"])
    texts = [text.strip().lower() for text in values.get("decision", ())]
    splits = [text.strip().lower() for text in values.get("split", [""] * count)]
    kinds = np.array(texts or [WRONG] * count, dtype="<U8" if count else str)
    allowed = (*DECISIONS, *UNDECIDED)
    if other := [place for place, text in enumerate(texts) if text not in allowed]:
        query, document, text = (
            values[name][other[0]] for name in ("query_id", "doc_id", "decision")
        )
        raise DataError(
            f"{path}: the decision about {_named(query, document)} is {shown(text)}; it must be "
            "wrong, correct, missing, or empty where nothing was decided"
        )
    kinds[np.isin(kinds, UNDECIDED)] = ""
    return kinds, np.array([split == "test" for split in splits], dtype=bool)


def with_decisions(data: RetrievalData, paths: Sequence[str | Path]) -> RetrievalData:
    """Return the data with the decisions of files applied to train and dev; a note counts them.

    Wrong pairs leave both splits, missing documents become relevant to their query, and correct
    pairs are ``confirmed``: nothing doubts them again. Test stays as it is.

    Raises:
        DataError: as :func:`read_decisions`; if no decision is about train, dev or test; and if
            nothing would be left to train on.
    """
    if not paths:
        return data
    decisions = read_decisions(data, paths)
    about_training = decisions.select(~decisions.of_test)
    counts = dict.fromkeys(DECISIONS, 0)
    sets = [
        _applied(data, part, first, about_training, counts)
        for part, *first in zip(each_set(data), *first_rows(data), strict=False)
    ]
    of_test = int(decisions.of_test.sum())
    if len(decisions.kinds) > of_test and not any(counts.values()):
        raise DataError(
            f"{decisions.paths}: decides about no relevant pair of train or dev; decisions about "
            "test need test in a column split"
        )
    if not any(part.splits["train"].has_relevant.any() for part in sets):
        raise DataError(f"{decisions.paths}: calls every pair of train wrong: nothing is left")
    done = [
        f"{counted(counts[WRONG], 'pair')} removed",
        f"{counts[MISSING]:,} added",
        f"{counts[CORRECT]:,} confirmed by {decisions.paths}",
    ]
    if of_test:
        done.append(f"{of_test:,} decisions about test change no training")
    sets[0] = replace(sets[0], notes=(*sets[0].notes, ", ".join(done)))
    return with_sets(data, sets)


def _applied(
    data: RetrievalData,
    part: RetrievalData,
    first: Sequence[int],
    decisions: Decisions,
    counts: dict[str, int],
) -> RetrievalData:
    """Apply decisions to one of the data sets of ``data``, whose texts begin at the rows ``first``
    there, and count those that changed something."""
    in_part = (decisions.doc_rows >= first[1]) & (decisions.doc_rows < first[1] + len(part.corpus))
    decisions = decisions.select(in_part | (decisions.kinds != MISSING))
    splits, confirmed = dict(part.splits), [np.empty(0, dtype=np.int64)]
    held_out = None if part.held_out is None else moved(part.held_out, *first)
    for name in set(CHANGED) & splits.keys():
        given = moved(splits[name], *first)
        relevant = given.relevant()
        for kind in (WRONG, CORRECT):
            counts[kind] += int(
                np.isin(text_keys(data, relevant), decisions.keys(data, kind)).sum()
            )
        changed = changed_qrels(data, given, decisions, part.lowest_grade, held_out)
        counts[MISSING] += int((~given.relevant().contains(changed.relevant())).sum())
        splits[name] = moved(changed, -first[0], -first[1])
        trusted = np.isin(text_keys(data, changed), decisions.keys(data, CORRECT, MISSING))
        confirmed.append(text_keys(part, splits[name].select_judgements(trusted)))
    keys = np.concatenate(confirmed)
    return replace(part, splits=splits, confirmed=keys if len(keys) else None)


def changed_qrels(
    data: RetrievalData,
    qrels: Qrels,
    decisions: Decisions,
    grade: int = 1,
    held_out: Qrels | None = None,
) -> Qrels:
    """Take wrong pairs out of qrels, and add documents that their queries lack.

    Args:
        data: the texts.
        qrels: the judgements of a split.
        decisions: about them, and perhaps about others.
        grade: of what is added.
        held_out: judgements of documents that are held out for another split, and not added.
    """
    keys, missing = text_keys(data, qrels), decisions.keys(data, MISSING)
    not_relevant = np.isin(keys, missing) & (qrels.grades <= 0)
    changed = qrels.select_judgements(~(np.isin(keys, decisions.keys(data, WRONG)) | not_relevant))
    added = decisions.select(decisions.kinds == MISSING)
    queries, documents = data.query_group[added.query_rows], data.document_group[added.doc_rows]
    is_new = ~np.isin(missing, text_keys(data, changed))
    is_new &= np.isin(queries, data.query_group[qrels.query_rows])
    if held_out is not None:
        is_new &= ~np.isin(documents, data.document_group[held_out.doc_rows])
    if not is_new.any():
        return changed
    # the split may hold the query under the id of a copy
    order = np.argsort(data.query_group[qrels.query_rows], kind="stable")
    groups = data.query_group[qrels.query_rows][order]
    rows = qrels.query_rows[order[np.searchsorted(groups, queries[is_new])]]
    grades = np.full(len(rows), grade, dtype=np.int32)
    return changed.union(Qrels.from_arrays(rows, added.doc_rows[is_new], grades))


def _pair(data: RetrievalData, decisions: Decisions, place: int) -> str:
    rows = decisions.query_rows[place : place + 1], decisions.doc_rows[place : place + 1]
    return _named(data.queries.ids(rows[0])[0], data.corpus.ids(rows[1])[0])


def _named(query: str, document: str) -> str:
    return f"query {shown(query)}, document {shown(document)}"
