"""Add wrong pairs to a data set, to study noisy labels (Section 3.5, Appendix C.4)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import opera
from opera.data import Mixture, Qrels, RetrievalData, draw_missing_splits, with_relevant_grade

NEEDS = {
    "random": {"share"},
    "hard": {"share", "model"},
    "clicks": {"share", "model"},
    "neighbour": {"share"},
    "grade": {"grade"},
}
"""The kinds of wrong pairs, and their arguments."""
HARD, DEPTH, NEAR = (10, 100), 100, 5
"""``hard``: range of ranks from 0; depth of rankings; ``neighbour``: maximum distance in rows."""
MOST_FAILURES = 10_000
"""After this number of failed samples in a row, there are too few candidates."""
WRONG_PAIRS = "wrong_pairs.tsv"

WrongPair = tuple[str, str, str]
"""Query id, document id and split."""
Rows = NDArray[np.int32] | int


def add_wrong_pairs(
    data: RetrievalData,
    kind: str,
    share: float | None,
    seed: int,
    *,
    model: str | Path | None = None,
    grade: int | None = None,
    relevant_grade: int | None = None,
    splits: Sequence[str] = ("train", "dev"),
) -> tuple[RetrievalData, list[WrongPair]]:
    """Add wrong pairs to the train and dev splits, after splitting off a missing test split.

    The query of a wrong pair is that of a random correct pair.

    Args:
        data: the data set.
        kind: the source of the documents. ``random``: the corpus. ``hard``: ranks 11 to 100 of
            the model. ``clicks``: its first 100 ranks, rank r in proportion to 1/r.
            ``neighbour``: up to 5 rows of the corpus before or after a relevant document.
            ``grade``: all documents of train with grades from ``grade`` to below
            ``relevant_grade`` (ANTIQUE in Appendix C.4).
        share: the noise rate: the fraction of a split's pairs that is wrong afterwards; ``None``
            for ``grade``.
        seed: random seed.
        model: the base model, for ``hard`` and ``clicks``.
        grade: the lowest grade, for ``grade``.
        relevant_grade: the lowest relevant grade, which wrong pairs get; by default 1, or one above
            ``grade``.
        splits: the splits that get wrong pairs.

    Returns:
        The data set, and its wrong pairs.

    Raises:
        InputError: for a wrong argument, or if there are too few candidates.
    """
    _check(kind, share, model, grade)
    if relevant_grade is None:
        relevant_grade = 1 if grade is None else max(1, grade + 1)
    if grade is not None and grade >= relevant_grade:
        rule = f"must be below relevant_grade={relevant_grade}, got {grade}"
        raise opera.SettingError(f"grade: {rule}")
    if "test" not in data.splits:
        data = draw_missing_splits(Mixture.of(data), seed=seed).joined
    graded = with_relevant_grade(data, relevant_grade)
    count, known = len(graded.training_split().doc_rows), _known(graded)
    changed, wrong, notes = dict(data.splits), [], [*data.notes]
    for split in splits if grade is None else ("train",):
        if split not in data.splits:
            continue
        if share is None:
            rows = _judged_below(data.split(split), grade or 0, graded, known)
        else:
            rng = _generator(seed, kind, split)
            ranking = {} if model is None else _ranking(graded, split, model)
            rows = _sampled(graded, split, kind, share, rng, ranking, known)
        changed[split] = _with_wrong(data.split(split), rows, relevant_grade)
        pairs = int((changed[split].grades >= relevant_grade).sum())
        notes.append(f"{len(rows):,} of the {pairs:,} pairs of {split} are wrong ({kind})")
        ids = data.queries.ids(rows[:, 0]), data.corpus.ids(rows[:, 1])
        wrong += [(query, doc, split) for query, doc in zip(*ids, strict=True)]
    if not wrong:
        problem = f"share={share} of {count:,} train pairs is less than one pair"
        if share is None:
            problem = f"train has no document with a grade from {grade} to {relevant_grade - 1}"
        raise opera.SettingError(f"{data.title}: {problem}")
    digest = hashlib.sha256(repr((data.fingerprint, wrong)).encode()).hexdigest()
    return replace(data, splits=changed, fingerprint=digest, notes=tuple(notes)), wrong


def write_noisy(data: RetrievalData, wrong: Sequence[WrongPair], folder: Path) -> None:
    """Write the result of :func:`add_wrong_pairs` as a BEIR folder with ``wrong_pairs.tsv``."""
    data.write_beir(folder)
    lines = ["split\tquery_id\tdoc_id", *(f"{split}\t{q}\t{d}" for q, d, split in wrong)]
    (folder / WRONG_PAIRS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _check(kind: str, share: float | None, model: str | Path | None, grade: int | None) -> None:
    """Refuse an unknown kind, and missing or superfluous arguments."""
    if kind not in NEEDS:
        raise opera.SettingError(f"kind: must be one of {', '.join(NEEDS)}, got {kind!r}")
    for name, value in {"share": share, "model": model, "grade": grade}.items():
        if (value is not None) != (name in NEEDS[kind]):
            rule = "needs a" if value is None else "takes no"
            raise opera.SettingError(f"kind={kind}: {rule} {name}")
    if share is not None and not 0 < share < 1:
        raise opera.SettingError(f"share: must be above 0 and below 1, got {share:g}")


def _generator(seed: int, kind: str, split: str) -> np.random.Generator:
    """Return the random generator; its name must not change, as published figures depend on it."""
    purpose = f"study.false_labels.{kind}.{split}"
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), 0])


def _known(data: RetrievalData) -> set[int]:
    """Return the keys of all relevant pairs, including held-out pairs."""
    judged = [*data.splits.values(), *([] if data.held_out is None else [data.held_out])]
    relevant = [qrels.relevant() for qrels in judged]
    keys = [_keys(data, q.query_rows[q.query_index], q.doc_rows) for q in relevant]
    return set(np.concatenate(keys).tolist())


def _keys(data: RetrievalData, queries: Rows, docs: Rows) -> NDArray[np.int64]:
    """Number pairs by their texts: copies of a query or document have the same number."""
    query_group = data.query_group[queries].astype(np.int64)
    return query_group * len(data.corpus) + data.document_group[docs]


def _ranking(data: RetrievalData, split: str, model: str | Path) -> dict[int, NDArray[np.int32]]:
    """Rank the corpus for the queries of a split: document rows by query row."""
    if len(data.corpus) < DEPTH:
        size = len(data.corpus)
        raise opera.DataError(f"{data.title}: its {size:,} documents are too few for ranks up to {DEPTH}")
    evaluation = opera.evaluate(data, model=model, split=split, measures=[f"R@{DEPTH}"])
    queries = data.queries.find_rows(evaluation.query_ids).tolist()
    return dict(zip(queries, evaluation.ranking.doc_rows, strict=True))


def _sampled(
    data: RetrievalData,
    split: str,
    kind: str,
    share: float,
    rng: np.random.Generator,
    ranking: Mapping[int, NDArray[np.int32]],
    known: set[int],
) -> NDArray[np.int64]:
    """Sample the wrong pairs of a split: query and document rows, int64 ``[M, 2]``, sorted."""
    relevant, n_docs = data.split(split).relevant(), len(data.corpus)
    queries = relevant.query_rows[relevant.query_index].tolist()
    correct = list(zip(queries, relevant.doc_rows.tolist(), strict=True))
    by_rank = 1 / np.arange(1, DEPTH + 1)
    by_rank /= by_rank.sum()
    samplers: dict[str, Callable[[int, int], np.integer[Any]]] = {
        "random": lambda query, doc: rng.integers(n_docs),
        "hard": lambda query, doc: ranking[query][rng.integers(*HARD)],
        "clicks": lambda query, doc: ranking[query][rng.choice(DEPTH, p=by_rank)],
        "neighbour": lambda query, doc: np.clip(doc + rng.choice([-1, 1]) * rng.integers(1, NEAR + 1), 0, n_docs - 1),
    }
    count = round(share / (1 - share) * len(correct))
    unusable = {-1, *data.corpus.empty_rows().tolist()}
    wrong: dict[int, tuple[int, int]] = {}
    failures = 0 if count <= relevant.n_queries * n_docs else MOST_FAILURES
    while len(wrong) < count:
        if failures == MOST_FAILURES:
            needs = f"{split} of {data.title} needs {count:,} wrong pairs of kind {kind}"
            raise opera.SettingError(f"share={share:g}: {needs}, but has too few candidates")
        query, relevant_doc = correct[rng.integers(len(correct))]
        doc = int(samplers[kind](query, relevant_doc))
        key = int(_keys(data, query, doc))
        if doc in unusable or key in known or key in wrong:
            failures += 1
        else:
            wrong[key], failures = (query, doc), 0
    return np.array(sorted(wrong.values()), dtype=np.int64).reshape(-1, 2)


def _judged_below(judged: Qrels, grade: int, data: RetrievalData, known: set[int]) -> NDArray[np.int64]:
    """Return the pairs with ``grade`` or higher that are not relevant: rows, int64 ``[M, 2]``."""
    queries = judged.query_rows[judged.query_index]
    wrong = (judged.grades >= grade) & ~np.isin(judged.doc_rows, data.corpus.empty_rows())
    wrong &= ~np.isin(_keys(data, queries, judged.doc_rows), list(known))
    return np.stack([queries[wrong], judged.doc_rows[wrong]], axis=1).astype(np.int64)


def _with_wrong(judged: Qrels, rows: NDArray[np.int64], grade: int) -> Qrels:
    """Label the wrong pairs as relevant, with the mean of the weights."""
    weights = None if judged.weights is None else np.full(len(rows), judged.weights.mean())
    wrong = Qrels.from_arrays(rows[:, 0], rows[:, 1], np.full(len(rows), grade), weights)
    return judged.select_judgements(~wrong.contains(judged)).union(wrong)
