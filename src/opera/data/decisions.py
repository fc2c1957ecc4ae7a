"""Decisions of a person, or another judge, about labels: wrong, correct or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, distinct_numbers, is_among
from opera.core.errors import DataError
from opera.core.terminal import counted, shown
from opera.data.columns import normal
from opera.data.copies import text_keys
from opera.data.id_lists import USER_COLUMN, IdList, read_lists
from opera.data.list_matching import match_pairs
from opera.data.mixture import Mixture
from opera.data.pairs import NO_PAIRS, DecidedPairs, pair_keys, split_keys
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData

WRONG = "wrong"
DECISIONS = (WRONG, "correct", "missing")
COLUMNS = ("query", "document", "decision", "split", "first_rank")
SUSPICIOUS_COLUMNS = (
    "probability_wrong", "first_rank", "query_id", "doc_id", "query", "document", "file", "line"
)  # fmt: skip
"""The columns of a run's ``suspicious_pairs.csv``, whose pairs all count as wrong. The user's
columns follow."""
KEYS = {"x": WRONG, "c": "correct", "u": "", "unsure": ""}
"""The keys of the review page, which a table may contain too; a pair may be undecided."""
NOT_KNOWN = 0.5
"""The first rank of a pair that was not trained: neither high nor low."""
FILL_IN = "write wrong, correct or missing in this column"
MATCHING = 0.5
"""The least fraction of a file's decisions whose pairs must be in the data."""


@dataclass(frozen=True)
class Decisions:
    """Decided pairs. A decision also applies to copies of the pair, which have the same texts.

    Attributes:
        query_rows: int64 ``[m]``, rows in the query table of a data set, or in the joined one.
        doc_rows: int64 ``[m]``, document rows.
        relevant: bool ``[m]``, whether the document is relevant to the query: false for wrong
            pairs, true for correct and missing pairs.
        of_test: bool ``[m]``, whether the decision is about the test split.
        first_rank: float32 ``[m]``, the fraction of documents that ranked above the pair's document
            when the pair was first sampled; .5 if unknown.
        paths: the files, for messages.
    """

    query_rows: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    relevant: BoolArray
    of_test: BoolArray
    first_rank: NDArray[np.float32]
    paths: str

    def select(self, chosen: BoolArray) -> Decisions:
        """Return the decisions with a true value in ``chosen``, bool ``[m]``."""
        return Decisions(
            self.query_rows[chosen], self.doc_rows[chosen], self.relevant[chosen],
            self.of_test[chosen], self.first_rank[chosen], self.paths,
        )  # fmt: skip

    def of_data_set(self, mixture: Mixture, set_number: int) -> Decisions:
        """Return the decisions about the pairs of a data set, with its rows.

        The rows of ``self`` must be those of the joined tables.
        """
        first_query_row, first_doc_row = mixture.first_rows[set_number]
        end = first_query_row + len(mixture.data_sets[set_number].queries)
        about_set = self.select((self.query_rows >= first_query_row) & (self.query_rows < end))
        return replace(
            about_set,
            query_rows=about_set.query_rows - first_query_row,
            doc_rows=about_set.doc_rows - first_doc_row,
        )

    def keys(self, data: RetrievalData) -> NDArray[np.int64]:
        """One number per pair, see :func:`opera.data.copies.text_keys`: int64 ``[m]``."""
        return pair_keys(data.query_group[self.query_rows], data.document_group[self.doc_rows])


def read_decisions(
    mixture: Mixture, paths: Sequence[str | Path], *, only_test: bool = False
) -> tuple[Decisions, list[str]]:
    """Read files of decisions, such as ``decisions.csv`` of a review.

    Args:
        mixture: the data sets of the decisions.
        paths: tables with the columns ``query_id``, ``doc_id`` and ``decision``: wrong, correct,
            missing, or empty; or folders of tables. All pairs of a run's ``suspicious_pairs.csv``
            are wrong. The column ``split`` is test for decisions about the test split. The columns
            ``query`` and ``document``, if present, must match the texts of the data, or their
            beginnings.
        only_test: read only decisions about test. All their pairs must be in the data, and a
            decision does not apply to copies of its pair.

    Returns:
        The decisions, with the rows of the joined tables, and notes.

    Raises:
        DataError: if a file cannot be read, has no decisions, or does not match the data; for an
            unknown decision; and for two decisions that contradict each other.
    """
    lists = read_lists(paths, mixture.list_options, optional=COLUMNS)
    decided = [_decided(listed, only_test) for listed in lists]
    pairs, notes = match_pairs(decided, mixture, "decision", 1 if only_test else MATCHING)
    decisions = Decisions(
        np.array(pairs["query_row"].to_pylist(), dtype=np.int64),
        np.array(pairs["doc_row"].to_pylist(), dtype=np.int64),
        np.array([kind != WRONG for kind in pairs["decision"].to_pylist()], dtype=bool),
        np.array([split == "test" for split in pairs["split"].to_pylist()], dtype=bool),
        np.nan_to_num(np.array(pairs["first_rank"].to_pylist(), dtype=np.float32), nan=NOT_KNOWN),
        ", ".join(map(str, paths)),
    )
    keys_by_id = pair_keys(decisions.query_rows, decisions.doc_rows)
    keys = keys_by_id if only_test else decisions.keys(mixture.joined)
    decided_pairs = np.stack([keys, decisions.of_test])
    _, first_decisions, pair_numbers = np.unique(
        decided_pairs, axis=1, return_index=True, return_inverse=True
    )
    differs = decisions.relevant[first_decisions][pair_numbers] != decisions.relevant
    if differs.any():
        example = decisions.select(differs)
        (query_id,) = mixture.joined.queries.ids(example.query_rows[:1])
        (doc_id,) = mixture.joined.corpus.ids(example.doc_rows[:1])
        raise DataError(
            f"{decisions.paths}: {_named(query_id, doc_id)} is wrong in one row, and correct or "
            "missing in another; keep one of them"
        )
    return decisions.select(np.isin(np.arange(len(pair_numbers)), first_decisions)), notes


def _decided(listed: IdList, only_test: bool) -> IdList:
    """Select the pairs of a file with a decision, and complete its columns."""
    path, table = listed.path, listed.table
    values: dict[str, list[Any]] = table.to_pydict()
    if "decision" in values:
        kinds = [text.strip().lower() for text in values["decision"]]
        if not any(kinds):
            raise DataError(f"{path}: column 'decision' is empty; {FILL_IN}")
    elif "probability_wrong" in listed.columns and all(map(_is_suspicious_column, listed.columns)):
        kinds = [WRONG] * len(table)
    else:
        raise DataError(
            f"{path}: column 'decision' is missing; {FILL_IN}. Only a run's suspicious_pairs.csv "
            "may lack it"
        )
    for list_row, text in enumerate(kinds):
        kinds[list_row] = kind = KEYS.get(text, text)
        if kind not in (*DECISIONS, ""):
            pair = _named(values["query_id"][list_row], values["doc_id"][list_row])
            raise DataError(
                f"{path}: the decision about {pair} is {shown(text)}; it must be wrong, correct or "
                "missing, or empty if there is none"
            )
    splits = [text.strip().lower() for text in values.get("split", [""] * len(table))]
    ranks = values.get("first_rank", [None] * len(table))
    values |= {"decision": kinds, "split": splits, "first_rank": ranks}
    decided = [
        kind != "" and (split == "test" or not only_test)
        for kind, split in zip(kinds, splits, strict=True)
    ]
    return listed._replace(table=pa.table(values).filter(pa.array(decided, pa.bool_())))


def _only_in_test(mixture: Mixture, decisions: Decisions) -> int:
    """Count the decisions about training whose pair is in test, and in no other split."""
    splits = mixture.joined.splits
    keys = {name: text_keys(mixture.joined, qrels) for name, qrels in splits.items()}
    trained = [keys[name] for name in ("train", "dev") if name in keys]
    decided = decisions.keys(mixture.joined)
    in_test = is_among(decided, keys.get("test", NO_PAIRS))
    return int((in_test & ~is_among(decided, np.concatenate(trained))).sum())


def _is_suspicious_column(name: str) -> bool:
    return name in SUSPICIOUS_COLUMNS or name.startswith(normal(USER_COLUMN))


def with_decisions(mixture: Mixture, paths: Sequence[str | Path]) -> Mixture:
    """Apply the decisions in files to train and dev; a note counts them.

    Wrong pairs leave both splits. Missing documents become relevant to their query. Correct pairs
    become ``confirmed``, so OPERA never lists them as suspicious again. A correct pair without a
    label counts as missing. Test does not change.

    Raises:
        DataError: as :func:`read_decisions`; if no decision is about train, dev or test; and if no
            pair would be left to train on.
    """
    if not paths:
        return mixture
    mixture.joined.training_split()  # raises an error if train has no pair
    decisions, notes = read_decisions(mixture, paths)
    about_training, counts = decisions.select(~decisions.of_test), Counter[str]()
    set_numbers = range(len(mixture.data_sets))
    applied = [_applied(mixture, set_number, about_training, counts) for set_number in set_numbers]
    data_sets = [data_set for data_set, _ in applied]
    if len(about_training.relevant) and not counts.total():
        raise DataError(
            f"{decisions.paths}: has no decision about a query of train or dev; decisions about "
            "test need the word test in a column split"
        )
    if not any(data_set.splits["train"].has_relevant.any() for data_set in data_sets):
        raise DataError(
            f"{decisions.paths}: calls every training pair wrong: no pair is left to train on"
        )
    changes = [
        f"{counted(counts['removed'], 'pair')} removed",
        f"{counts['added']:,} added",
        f"{counts['confirmed']:,} confirmed by {decisions.paths}",
    ]
    if held_out := counts["held_out"]:
        changes.append(f"{held_out:,} not added, to hold their documents out of train")
    if in_test := _only_in_test(mixture, about_training):
        changes.append(f"{in_test:,} about pairs that are now in test, and are not used")
    if of_test := int(decisions.of_test.sum()):
        changes.append(f"training ignores {counted(of_test, 'decision')} about test")
    notes = [*data_sets[0].notes, *notes, ", ".join(changes)]
    data_sets[0] = replace(data_sets[0], notes=tuple(notes))
    decided_pairs = tuple(pairs for _, pairs in applied)
    return replace(mixture.with_data_sets(data_sets), decided=decided_pairs)


def _applied(
    mixture: Mixture, set_number: int, decisions: Decisions, counts: Counter[str]
) -> tuple[RetrievalData, DecidedPairs]:
    """Apply decisions to a data set, and count the changes.

    Decisions about other data sets apply to pairs with the same texts, but add no pair.
    """
    data, about_set = mixture.data_sets[set_number], decisions.of_data_set(mixture, set_number)
    relevant, wrong = about_set.select(about_set.relevant), decisions.select(~decisions.relevant)
    wrong_keys = wrong.keys(mixture.joined)
    relevant_keys = decisions.select(decisions.relevant).keys(mixture.joined)
    splits, excess = dict(data.splits), 0
    for name in {"train", "dev"} & splits.keys():  # decisions about test correct only the metrics
        judged = data.splits[name]
        others = [data.splits[other] for other in splits.keys() - {name, "train"}]
        if data.held_out is not None:
            others.append(data.held_out)
        keys = text_keys(mixture.joined, judged.shifted(*mixture.first_rows[set_number]))
        is_wrong, is_confirmed = is_among(keys, wrong_keys), is_among(keys, relevant_keys)
        is_relevant = judged.grades > 0
        missing, blocked = _missing(data, judged, others, relevant)
        left = judged.select_judgements(~is_wrong & ~(is_confirmed & ~is_relevant))
        splits[name] = _with_added(left, missing, data.lowest_grade)
        if name == "train":
            ranks = wrong.first_rank[is_among(wrong_keys, keys[is_wrong & is_relevant])]
            excess = int((ranks > 0.5).sum() - (ranks < 0.5).sum())
        of_split = np.isin(split_keys(wrong_keys)[0], split_keys(keys)[0])
        counts.update(
            removed=int((is_wrong & is_relevant).sum()),
            confirmed=int((is_confirmed & is_relevant).sum()),
            added=len(missing.query_rows),
            held_out=blocked,
            rejected=int(of_split.sum()),
        )
    confirmed, rejected = (
        distinct_numbers(about_set.select(chosen).keys(data))
        for chosen in (about_set.relevant, ~about_set.relevant)
    )
    return replace(data, splits=splits), DecidedPairs(confirmed, rejected, excess)


def _with_added(qrels: Qrels, missing: Decisions, grade: int) -> Qrels:
    """Add missing pairs. Each counts as much as the mean pair."""
    grades = np.full(len(missing.doc_rows), grade, dtype=np.int32)
    weights = None if qrels.weights is None else np.full(len(grades), qrels.weights.mean())
    return qrels.union(Qrels.from_arrays(missing.query_rows, missing.doc_rows, grades, weights))


def _missing(
    data: RetrievalData, qrels: Qrels, others: Sequence[Qrels], relevant: Decisions
) -> tuple[Decisions, int]:
    """Choose the relevant documents that queries of a split lack; use the query rows of the split.

    A document that is relevant in ``others`` and not in this split stays out of this split, so that
    new documents stay new to train. The second value counts such pairs.
    """
    keys = text_keys(data, qrels.relevant())
    judged_groups = data.query_group[qrels.query_rows]
    is_new = ~is_among(relevant.keys(data), keys)
    is_new &= np.isin(data.query_group[relevant.query_rows], judged_groups)
    no_rows = np.empty(0, dtype=np.int32)
    doc_rows_elsewhere = np.concatenate([no_rows, *(other.relevant().doc_rows for other in others)])
    groups_elsewhere = np.setdiff1d(
        data.document_group[doc_rows_elsewhere], data.document_group[qrels.relevant().doc_rows]
    )
    blocked = is_new & np.isin(data.document_group[relevant.doc_rows], groups_elsewhere)
    missing = relevant.select(is_new & ~blocked)
    # the split may contain a copy of the query, with another id
    order = np.argsort(judged_groups, kind="stable")
    positions = np.searchsorted(judged_groups[order], data.query_group[missing.query_rows])
    query_rows = qrels.query_rows[order[positions]].astype(np.int64)
    return replace(missing, query_rows=query_rows), int(blocked.sum())


def _named(query_id: str, doc_id: str) -> str:
    return f"query {shown(query_id)}, document {shown(doc_id)}"
