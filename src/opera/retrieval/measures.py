"""Measures of a ranking against qrels: every measure of ir_measures, and OPERA's own.

Register your own measure with one line::

    @register_measure("my_measure")  # then request my_measure@10
    def my_measure(gains, cutoff): ...
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
from numpy.typing import NDArray

from opera.core.errors import SettingError
from opera.core.registry import Registry
from opera.core.terminal import shown
from opera.data.qrels import Qrels

RETRIEVED_IDEAL = "retrieved_ideal_nDCG"
RETRIEVED_DEPTH = 100
"""How many retrieved documents the paper's nDCG considers (paper.md, row 8); no ranking is shorter."""
WHOLE_RANKING_DEPTH = 1000
"""How many documents a measure without a cutoff sees, as in TREC runs."""
LISTING = "https://ir-measur.es/en/latest/measures.html"

DEFAULT_MEASURES = ("nDCG@10", f"{RETRIEVED_IDEAL}@10", "R@20", "RR@10", "Success@10")
CUTOFFS = (1, 5, 10, 20, 50, 100)
FULL_MEASURES = tuple(
    f"{family}@{cutoff}"
    for family in ("nDCG", RETRIEVED_IDEAL, "R", "RR", "Success")
    for cutoff in CUTOFFS
)


@dataclass(frozen=True)
class Ranking:
    """The best documents of each judged query, best first.

    Attributes:
        doc_rows: int32 ``[n, depth]``, corpus rows; -1 past the end of a small corpus.
        scores: float32 ``[n, depth]``, non-increasing along a row; -inf past the end.
    """

    doc_rows: NDArray[np.int32]
    scores: NDArray[np.float32]


def check_measures(names: Sequence[str]) -> int:
    """Check that every measure can be computed here.

    Returns:
        The depth a ranking needs for them.

    Raises:
        SettingError: for an unknown name, with the nearest known one, or a measure whose provider is not installed.
    """
    if not names or not all(names):
        raise SettingError("measures: name at least one, such as nDCG@10")
    depth = RETRIEVED_DEPTH
    for name in names:
        if len(name) > MAX_NAME or re.search(rf"\d{{{MAX_DIGITS + 1},}}", name):
            limits = f"of {MAX_NAME} characters at most, and numbers of {MAX_DIGITS} digits"
            raise SettingError(f"unknown measure {shown(name)}: {limits}")
        if own := _own_measure(name):
            depth = max(depth, own[1])
        else:
            cutoff = _parse(name).params.get("cutoff", WHOLE_RANKING_DEPTH)
            depth = max(depth, cutoff)
    return depth


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of measures; commas inside parentheses do not separate."""
    return tuple(name.strip() for name in re.split(r",(?![^(]*\))", text))


def per_query(
    ranking: Ranking, qrels: Qrels, names: Sequence[str] = DEFAULT_MEASURES
) -> dict[str, NDArray[np.float64]]:
    """Compute measures for each judged query.

    ``nDCG`` is trec_eval's (graded gains, the ideal over all judged documents). ``R`` divides by the number of relevant
    documents, not by the cutoff. ``retrieved_ideal_nDCG`` is :func:`retrieved_ideal_ndcg`.

    Args:
        ranking: rows parallel to ``qrels.query_rows``.
        qrels: every query must have a relevant document.
        names: measures such as ``nDCG@10``.

    Returns:
        float64 ``[n]`` by measure name, in the order of ``names``.

    Raises:
        SettingError: for a measure that cannot be computed.
    """
    check_measures(names)
    own = {name: parsed for name in names if (parsed := _own_measure(name))}
    values: dict[str, NDArray[np.float64]] = {}
    if own:
        gains = _binary_gains(ranking, qrels)
        values |= {name: compute(gains, cutoff) for name, (compute, cutoff) in own.items()}
    if parsed_names := {name: _parse(name) for name in names if name not in own}:
        results = {measure: np.zeros(qrels.n_queries) for measure in parsed_names.values()}
        for metric in ir_measures.iter_calc(
            list(results), _grades_by_id(qrels), _ranks_by_id(ranking)
        ):
            results[metric.measure][int(metric.query_id)] = metric.value
        values |= {name: results[measure] for name, measure in parsed_names.items()}
    return {name: values[name] for name in names}


def retrieved_ideal_ndcg(gains: NDArray[np.float64], cutoff: int) -> NDArray[np.float64]:
    """The paper's NDCG@k: the ideal ranking holds only relevant documents *among the 100 retrieved*.

    It rewards lost recall and must never be reported as nDCG (paper.md, row 8). Zero if nothing relevant was retrieved.

    Args:
        gains: float64 ``[n, depth]``, 1 if the document at that rank is relevant, else 0.
        cutoff: k.

    Returns:
        float64 ``[n]``.
    """
    considered = gains[:, :RETRIEVED_DEPTH]
    discounts = 1 / np.log2(np.arange(2, considered.shape[1] + 2))
    found = considered[:, :cutoff] @ discounts[:cutoff]
    ideal = -np.sort(-considered, axis=1)[:, :cutoff] @ discounts[:cutoff]
    return np.divide(found, ideal, out=np.zeros(len(found)), where=ideal > 0)


MAX_NAME, MAX_DIGITS = 100, 9
"""Bounds of a measure's name, and of the numbers in it."""

OwnMeasure = Callable[[NDArray[np.float64], int], NDArray[np.float64]]
"""Takes gains of 0 and 1, float64 ``[n, depth]``, and a cutoff; returns float64 ``[n]``. Depth is at least the cutoff,
unless the corpus is smaller."""

OWN_MEASURES: Registry[OwnMeasure] = Registry("measure")
"""Measures that ir_measures lacks, by name; requested as NAME@CUTOFF."""

OWN_MEASURES[RETRIEVED_IDEAL] = retrieved_ideal_ndcg


def register_measure(name: str) -> Callable[[OwnMeasure], OwnMeasure]:
    """Return a function decorator that makes ``name@CUTOFF`` a measure.

    Raises:
        ValueError: if another measure of OPERA or a user has the name, in any case.
    """
    return OWN_MEASURES.registers(name)


def means(values: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Average each measure over the queries."""
    return {name: float(per_query_values.mean()) for name, per_query_values in values.items()}


def _own_measure(name: str) -> tuple[OwnMeasure, int] | None:
    """Return the function and cutoff of one of OPERA's own measures, ``None`` for any other name."""
    family, _, cutoff = name.partition("@")
    if family not in OWN_MEASURES:
        return None
    if not cutoff.isdecimal() or int(cutoff) < 1:
        raise SettingError(
            f"unknown measure '{name}': {family} needs a cutoff, such as {family}@10"
        )
    return OWN_MEASURES[family], int(cutoff)


def _parse(name: str) -> ir_measures.Measure:
    """Parse a measure of ir_measures, and check its parameters and that an installed provider computes it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", SyntaxWarning
            )  # of numbers such as 1x: the ValueError below says it
            measure = ir_measures.parse_measure(name)
    except NameError:
        raise SettingError(
            f"unknown measure '{name}'{_nearest_measure(name)} (known: {', '.join(OWN_MEASURES)}, and those of "
            f"{LISTING})"
        ) from None
    except ValueError:
        raise SettingError(
            f"unknown measure '{name}'{_nearest_measure(name)} (write NAME@CUTOFF or NAME(key=value)@CUTOFF)"
        ) from None
    for key, info in measure.SUPPORTED_PARAMS.items():
        if info.required and key not in measure.params:
            example = f"{_family(name)}@10" if key == "cutoff" else f"{_family(name)}({key}=...)"
            raise SettingError(
                f"unknown measure '{name}': {_family(name)} needs a {key}, such as {example}"
            )
    try:
        measure.validate_params()
    except AssertionError as error:
        raise SettingError(f"unknown measure '{name}': {error}") from None
    gains = measure.params.get("gains") or {}
    if not all(type(part) is int for pair in gains.items() for part in pair):
        raise SettingError(
            f"unknown measure '{name}': gains must map whole numbers to whole numbers"
        )
    if measure.params.get("cutoff", 1) < 1:
        raise SettingError(f"unknown measure '{name}': the cutoff must be 1 or more")
    if not ir_measures.DefaultPipeline.supports(measure):
        raise SettingError(
            f"measure '{name}': no installed provider of ir_measures computes it; see {LISTING}"
        )
    return measure


def _family(name: str) -> str:
    return re.split(r"[@(]", name)[0]


def _nearest_measure(name: str) -> str:
    """Suggest the known measure closest to ``name``, ignoring case, with the same parameters and cutoff if valid."""
    families = [*ir_measures.measures.registry, *OWN_MEASURES]
    known = {
        family.casefold(): family for family in reversed(families)
    }  # of two spellings, the first listed
    family = _family(name)
    rest = name.removeprefix(family) if re.fullmatch(r"[^@]*@[1-9]\d*", name) else "@10"
    match = difflib.get_close_matches(family.casefold(), known, n=1, cutoff=0.5)
    return f"; did you mean '{known[match[0]]}{rest}'?" if match else ""


def _grades_by_id(qrels: Qrels) -> dict[str, dict[str, int]]:
    """Return grade by document by query, as ir_measures takes qrels; row numbers serve as ids."""
    grades: dict[str, dict[str, int]] = {str(query): {} for query in range(qrels.n_queries)}
    for query, doc, grade in zip(qrels.query_index, qrels.doc_rows, qrels.grades, strict=True):
        grades[str(query)][str(doc)] = int(grade)
    return grades


def _ranks_by_id(ranking: Ranking) -> dict[str, dict[str, float]]:
    """Return score by document by query, as ir_measures takes runs; scores are made from ranks, without ties."""
    depth = ranking.doc_rows.shape[1]
    return {
        str(query): {str(doc): float(depth - rank) for rank, doc in enumerate(docs) if doc >= 0}
        for query, docs in enumerate(ranking.doc_rows.tolist())
    }


def _binary_gains(ranking: Ranking, qrels: Qrels) -> NDArray[np.float64]:
    """Mark the relevant documents of a ranking: float64 ``[n, depth]``, 1 or 0."""
    gains = np.zeros(ranking.doc_rows.shape)
    for query in range(qrels.n_queries):
        part = slice(qrels.offsets[query], qrels.offsets[query + 1])
        relevant = qrels.doc_rows[part][qrels.grades[part] > 0]
        gains[query] = np.isin(ranking.doc_rows[query], relevant)
    return gains
