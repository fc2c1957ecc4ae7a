"""Measures of a ranking against qrels: those of ir_measures, and a few of OPERA.

Register your own measure with one line::

    @register_measure("my_measure")  # then request my_measure@10
    def my_measure(grades, relevant, cutoff): ...
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import ir_measures
import numpy as np
from numpy.typing import NDArray

from opera.core.arguments import several, text
from opera.core.errors import DataError, SettingError, raise_first
from opera.core.files import replace_file
from opera.core.registry import Registry
from opera.core.terminal import shown, shown_path
from opera.data import RetrievalData
from opera.data.pairs import pair_keys
from opera.data.qrels import Qrels

RETRIEVED_IDEAL = "retrieved_ideal_nDCG"
RETRIEVED_DEPTH = 100
"""Number of retrieved documents that the paper's nDCG considers (erratum 8)."""
NO_CUTOFF_DEPTH = 1000
"""Number of documents that a measure without a cutoff considers, as in TREC runs."""
COUNTS = ("NumQ", "NumRel", "NumRet")
"""Families of ir_measures that count instead of measuring between 0 and 1."""
LISTING = "https://ir-measur.es/en/latest/measures.html"

FULL_MEASURES = tuple(
    f"{family}@{cutoff}"
    for family in ("nDCG", RETRIEVED_IDEAL, "R", "RR", "Success")
    for cutoff in (1, 5, 10, 20, 50, 100)
)


GradesMeasure = Callable[[NDArray[np.int32], NDArray[np.int64], int], NDArray[np.float64]]
"""Takes the grades of the ranked documents, int32 ``[n, depth]``, 0 for a document that is not
relevant or not judged; the number of relevant documents of each query, int64 ``[n]``; and a cutoff.
Returns float64 ``[n]``. Depth is at least the cutoff, unless the corpus is smaller."""


@dataclass(frozen=True)
class Ranking:
    """The best documents of each judged query, best first.

    Attributes:
        doc_rows: int32 ``[n, depth]``, corpus rows; -1 if an index found fewer documents.
        scores: float32 ``[n, depth]``, non-increasing along a row; -inf for -1 in ``doc_rows``.
    """

    doc_rows: NDArray[np.int32]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Measure:
    """A measure, parsed from its name.

    Attributes:
        name: as the user wrote it.
        computed_by: a function of grades, numbers of relevant documents and cutoff, or a measure of
            ir_measures.
        depth: number of ranked documents that it needs.
    """

    name: str
    computed_by: GradesMeasure | ir_measures.Measure
    depth: int

    @classmethod
    def parse(cls, name: str) -> Measure:
        """Parse a name, such as ``nDCG@10``.

        Raises:
            SettingError: if no installed package computes it; with the nearest known name.
        """
        family, _, cutoff = name.partition("@")
        family = MEASURES.spelling(family) or family
        if family not in MEASURES:
            measure = _parse(name)
            return cls(name, measure, measure.params.get("cutoff", NO_CUTOFF_DEPTH))
        if not cutoff.isdecimal() or int(cutoff) < 1:
            raise SettingError(
                f"unknown measure '{name}': {family} needs a cutoff, such as {family}@10"
            )
        if family == RETRIEVED_IDEAL and int(cutoff) > RETRIEVED_DEPTH:
            raise SettingError(
                f"{name}: considers only the best {RETRIEVED_DEPTH} documents; pass a cutoff of "
                f"{RETRIEVED_DEPTH} or less"
            )
        return cls(name, MEASURES[family], int(cutoff))


def parse_measures(names: str | Sequence[str | Measure]) -> tuple[Measure, ...]:
    """Parse names of measures, a list or separated by commas. :class:`Measure` objects pass.

    Raises:
        SettingError: for an unknown measure, one that no installed package computes, or no name.
    """
    if isinstance(names, str):  # commas inside parentheses do not separate
        names = [name.strip() for name in re.split(r",(?![^(]*\))", names)]
    requested = several(names, "measures", "texts")
    if not requested or not all(requested):
        raise SettingError("measures: name at least one, such as nDCG@10")
    return tuple(
        measure if isinstance(measure, Measure) else Measure.parse(text(measure, "measures"))
        for measure in requested
    )


def ranking_depth(measures: Iterable[Measure]) -> int:
    """The number of ranked documents that the measures need."""
    return max(RETRIEVED_DEPTH, *(measure.depth for measure in measures))


def per_query(
    ranking: Ranking, qrels: Qrels, measures: Sequence[Measure]
) -> dict[str, NDArray[np.float64]]:
    """Compute measures for each judged query: float64 ``[n]`` by name.

    ``nDCG`` is trec_eval's (graded gains, the ideal over all judged documents). ``R`` divides by
    the number of relevant documents, not by the cutoff. The ranking has one row for each row of
    ``qrels.query_rows``. Each query must have a relevant document.
    """
    computed = {
        measure.computed_by: np.zeros(qrels.n_queries)
        for measure in measures
        if isinstance(measure.computed_by, ir_measures.Measure)
    }
    grades_by_id, ranked = _grades_by_id(qrels) if computed else {}, ranking.doc_rows
    by_depth: dict[int, list[ir_measures.Measure]] = {}
    for measure in computed:
        limit = ranked.shape[1] if "cutoff" in measure.params else NO_CUTOFF_DEPTH
        by_depth.setdefault(min(limit, ranked.shape[1]), []).append(measure)
    for depth, of_depth in by_depth.items():
        run = {  # ranks as scores, to avoid ties
            str(query): {str(doc): float(depth - rank) for rank, doc in enumerate(docs) if doc >= 0}
            for query, docs in enumerate(ranked[:, :depth].tolist())
        }
        for value in ir_measures.iter_calc(of_depth, grades_by_id, run):
            computed[value.measure][int(value.query_id)] = value.value
    grades = _grades_of(ranking, qrels)
    relevant = np.bincount(qrels.query_index[qrels.grades > 0], minlength=qrels.n_queries)
    return {
        measure.name: computed[measure.computed_by]
        if isinstance(measure.computed_by, ir_measures.Measure)
        else _checked(measure, measure.computed_by(grades, relevant, measure.depth), len(grades))
        for measure in measures
    }


def _checked(measure: Measure, values: object, n_queries: int) -> NDArray[np.float64]:
    """Check the values of a registered measure.

    Raises:
        SettingError: if they are not one finite number per query.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n_queries,) or not np.isfinite(array).all():
        raise SettingError(
            f"measure '{measure.name}': its function must return a finite number for each of the "
            f"{n_queries:,} queries, got {shown(values)}"
        )
    return array


def retrieved_ideal_ndcg(
    grades: NDArray[np.int32], relevant: NDArray[np.int64], cutoff: int
) -> NDArray[np.float64]:
    """The paper's NDCG@k, whose ideal ranking holds relevant documents *among the 100 retrieved*.

    It rewards a loss of recall and must never be reported as nDCG (erratum 8). It is 0 if no
    relevant document was retrieved.

    Args:
        grades: int32 ``[n, depth]``, above 0 if the document at that rank is relevant, else 0.
        relevant: not used, because the ideal ranking depends on the ranking.
        cutoff: k.

    Returns:
        float64 ``[n]``.
    """
    considered = (grades[:, :RETRIEVED_DEPTH] > 0).astype(np.float64)
    discounts = 1 / np.log2(np.arange(2, considered.shape[1] + 2))
    gained = considered[:, :cutoff] @ discounts[:cutoff]
    ideal = -np.sort(-considered, axis=1)[:, :cutoff] @ discounts[:cutoff]
    return np.divide(gained, ideal, out=np.zeros(len(gained)), where=ideal > 0)


MEASURES: Registry[GradesMeasure] = Registry("measure")
"""Measures that ir_measures lacks, by name; users request them as NAME@CUTOFF."""

MEASURES[RETRIEVED_IDEAL] = retrieved_ideal_ndcg


def register_measure(name: str) -> Callable[[GradesMeasure], GradesMeasure]:
    """Return a function decorator that makes ``name@CUTOFF`` a measure.

    Raises:
        ValueError: if the name is taken, also by ir_measures; case does not matter.

    Examples:
        >>> @register_measure("any_in")
        ... def any_in(grades, relevant, cutoff):
        ...     return (grades[:, :cutoff] > 0).any(axis=1).astype(float)
        >>> 0 <= opera.evaluate("my-run", measures="any_in@10").measures["any_in@10"] <= 1
        True
    """
    if name.casefold() in map(str.casefold, ir_measures.measures.registry):
        raise ValueError(f"a measure named '{name}' is part of ir_measures")
    return MEASURES.decorator(name)


def means(values: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Average each measure over the queries."""
    return {name: float(per_query_values.mean()) for name, per_query_values in values.items()}


def _parse(name: str) -> ir_measures.Measure:
    """Parse a measure of ir_measures, and check its parameters and its provider."""
    unknown, family = f"unknown measure '{name}'", re.split(r"[@(]", name)[0]
    try:
        with warnings.catch_warnings():
            # ir_measures warns of numbers such as 1x; the error below reports them
            warnings.simplefilter("ignore", SyntaxWarning)
            measure = ir_measures.parse_measure(name)
    except (NameError, ValueError):
        known = f"known: those of {LISTING}, {MEASURES.choices}"
        form = "write NAME@CUTOFF or NAME(key=value)@CUTOFF"
        nearest = _nearest_measure(name, family)
        raise SettingError(f"{unknown}{nearest} ({known}; {form})") from None
    for key, info in measure.SUPPORTED_PARAMS.items():
        if info.required and key not in measure.params:
            example = f"{family}@10" if key == "cutoff" else f"{family}({key}=...)"
            raise SettingError(f"{unknown}: {family} needs a {key}, such as {example}")
    try:
        measure.validate_params()
    except AssertionError as error:  # ir_measures asserts that it supports the parameters
        raise SettingError(f"{unknown}: {error}") from None
    raise_first(
        SettingError,
        (measure.params.get("cutoff", 1) < 1, f"{unknown}: the cutoff must be 1 or more"),
        (family in COUNTS, f"measure '{name}': counts; choose a measure between 0 and 1"),
        (
            not ir_measures.DefaultPipeline.supports(measure),
            f"measure '{name}': no installed provider of ir_measures computes it; see {LISTING}",
        ),
    )
    return measure


def _nearest_measure(name: str, family: str) -> str:
    """Suggest the known measure closest to a name, ignoring case, with its cutoff if it has one."""
    families = [*ir_measures.measures.registry, *MEASURES]
    # reversed, so that the first of two spellings wins
    known = {spelling.casefold(): spelling for spelling in reversed(families)}
    rest = name.removeprefix(family) if re.fullmatch(r"[^@]*@[1-9]\d*", name) else "@10"
    match = difflib.get_close_matches(family.casefold(), known, n=1, cutoff=0.5)
    return f"; did you mean '{known[match[0]]}{rest}'?" if match else ""


def _grades_by_id(qrels: Qrels) -> dict[str, dict[str, int]]:
    """Return qrels as ir_measures reads them: grade by document by query, with rows as ids."""
    docs, grades = [str(row) for row in qrels.doc_rows.tolist()], qrels.grades.tolist()
    ranges = enumerate(pairwise(qrels.offsets.tolist()))
    return {str(query): dict(zip(docs[i:j], grades[i:j], strict=True)) for query, (i, j) in ranges}


def _grades_of(ranking: Ranking, qrels: Qrels) -> NDArray[np.int32]:
    """Return the grade of each ranked document: int32 ``[n, depth]``, 0 if it is not relevant."""
    judged, ranked = qrels.keys, pair_keys(qrels.query_rows[:, None], ranking.doc_rows)
    index = np.minimum(np.searchsorted(judged, ranked), len(judged) - 1)
    return np.where(judged[index] == ranked, np.maximum(qrels.grades[index], 0), 0)


def check_trec_ids(path: Path, data: RetrievalData, split: str) -> None:
    """Check that the TREC format can hold the ids of a split's queries and of the documents.

    Raises:
        DataError: for an id with white space.
    """
    # a run may have made the split, so check all queries
    rows = data.splits[split].query_rows if split in data.splits else None
    for identifier in (*data.queries.ids(rows), *data.corpus.ids()):
        if len(identifier.split()) != 1:
            raise DataError(
                f"{shown_path(path)}: a TREC run cannot hold the id {shown(identifier)}, which has "
                "white space"
            )


def write_trec_run(
    path: Path, query_ids: Sequence[str], ranking: Ranking, data: RetrievalData
) -> None:
    """Write the ranking of each query in the TREC format: query, Q0, document, rank, score, tag.

    Nine digits distinguish all float32 scores.
    """

    def lines() -> Iterable[str]:
        for number, query in enumerate(query_ids):
            rows = ranking.doc_rows[number]
            scored = zip(data.corpus.ids(rows[rows >= 0]), ranking.scores[number], strict=False)
            for rank, (doc, score) in enumerate(scored, start=1):
                yield f"{query} Q0 {doc} {rank} {score:.9g} opera\n"

    replace_file(path, lambda temporary: temporary.write_text("".join(lines()), encoding="utf-8"))
