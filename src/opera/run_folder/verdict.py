"""Was a run worth it? The changes of the measures on test, and the guard's verdict in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.intervals import (
    DIFFERENCE,
    FEW_QUERIES,
    LEAST_QUERIES,
    OF_ONE_QUERY,
    in_points,
    mean_interval,
    points,
)
from opera.core.measure_names import PRIMARY, column
from opera.core.terminal import counted
from opera.run_folder.record import GuardRecord, KeywordsRecord, RunRecord

NEWER = 0.1
"""If the fraction of documents in train is higher for dev than for test by more, OPERA warns."""


def headlines(
    record: RunRecord, measures: Mapping[str, Mapping[str, float]], per_query: pa.Table
) -> list[str]:
    """Say whether a run was worth it, what its final model is, and what keyword search adds.

    If keyword search is better than the final model, that comes first.

    Args:
        record: the run's record.
        measures: the contents of ``measures.json``.
        per_query: a row per test query.
    """
    queries = counted(per_query.num_rows, "test query")
    means = {model: values[PRIMARY] for model, values in measures.items()}
    if record.guard is not None:
        lines = [f"{verdict_sentence(record.guard)}.", f"{weight_sentence(record.guard)}."]
    else:
        base, final = means["base"], means["final"]
        lines = [
            f"{_change(PRIMARY, base, final, final - base)} on {queries}.",
            "The final model: the fine-tuned weights; the guard is off.",
        ]
    if "bm25" not in means:
        return lines
    lead = change(per_query, PRIMARY, "final", "bm25")
    is_better = lead.low > 0 and per_query.num_rows >= LEAST_QUERIES
    if is_better:
        lines.insert(
            0,
            f"Keyword search (BM25) alone is better than the final model: {PRIMARY} "
            f"{in_points(means['bm25'])} against {in_points(means['final'])} on {queries}.",
        )
    return [*lines, _keyword_sentence(record.keywords, means, per_query, is_better)]


def _keyword_sentence(
    keywords: KeywordsRecord | None,
    means: Mapping[str, float],
    per_query: pa.Table,
    bm25_is_better: bool,
) -> str:
    """Say what keyword search adds to the final model on test."""
    alone = f"BM25 alone: {in_points(means['bm25'])}"
    if keywords is None:
        return f"{alone}."
    if not any(keywords.weights.values()):
        return f"With keyword search: no gain on dev, so its weight is 0; {alone}."
    gain = change(per_query, PRIMARY, "final", "hybrid").in_points()
    weights = ", ".join(
        f"{weight:g}" + f" for {name}" * (len(keywords.weights) > 1)
        for name, weight in keywords.weights.items()
    )
    advice = "; search with both, or try a larger base model" if bm25_is_better else ""
    return (
        f"With keyword search (w = {weights}): {PRIMARY} {in_points(means['hybrid'])}, {gain} "
        f"against the final model; {alone}{advice}."
    )


def verdict_sentence(guard: GuardRecord) -> str:
    """Say in one sentence whether the run was worth it, without the full stop."""
    kept, words = guard.dev_verdict == "kept", verdict_words(guard)
    # with the base weights, the final model is equal to the base model on test
    measured = guard.dev if kept or guard.test is None else guard.test
    split = "dev" if measured is guard.dev else "test"
    changed = measured.fine_tuned if kept else measured.final
    difference = changed - measured.base if kept else measured.difference
    values = _change(guard.measure, measured.base, changed, difference)
    text = f"{words}: fine-tuning changes {values}" if kept else f"{words}: {values}"
    if not kept and measured.queries >= LEAST_QUERIES:
        interval = f"{points(measured.low)} to {points(measured.high)}"
        text = f"{text[:-1]}, 95% interval {interval})"
    return f"{text[0].upper()}{text[1:]} on {counted(measured.queries, f'{split} query')}"


def _change(measure: str, before: float, after: float, difference: float) -> str:
    return f"{measure} {in_points(before)} -> {in_points(after)} ({points(difference)})"


def verdict_words(guard: GuardRecord) -> str:
    """Return the verdict in a few words; ``better`` only if both dev and test say so."""
    if guard.dev_queries < LEAST_QUERIES:
        return f"too few dev queries to tell ({guard.dev_queries} of {LEAST_QUERIES})"
    if guard.dev_verdict == "kept":
        return "base model kept"
    on_dev, test = guard.dev_verdict == "better", guard.test
    if test is None:
        return "better on dev" if on_dev else "no significant gain"
    if test.queries < LEAST_QUERIES or test.low <= 0 <= test.high:
        return "better on dev, not confirmed on test" if on_dev else "no significant gain"
    if test.low > 0:
        return "better" if on_dev else "better on test, not confirmed on dev"
    return "better on dev, worse on test" if on_dev else "worse on test"


def gained(guard: GuardRecord | None) -> bool:
    """Whether a run was worth it: better on dev and on test."""
    return guard is not None and verdict_words(guard) == "better"


def weight_sentence(guard: GuardRecord) -> str:
    """Say what the weights of the final model are, and on how many queries they were chosen."""
    weight = guard.mixing_weight
    weights = f"{100 * weight:g}% fine-tuned, {100 * (1 - weight):g}% base weights"
    if weight in (0, 1):
        weights = "the fine-tuned weights" if weight else "the base weights"
    chosen = f"chosen on {counted(guard.dev_queries, 'dev query')}"
    return f"The final model: {weights} (λ = {weight:g}), {chosen}"


def dev_sentence(guard: GuardRecord) -> str:
    """Say on which queries λ was chosen, and how many of their documents train knows."""
    origin = "given with the data" if guard.dev_given else "split off train"
    if guard.dev_documents is not None:
        origin += f"; ranked among {counted(guard.dev_documents, 'document')}"
    assumed = "" if guard.expected_documents_given else ", assumed"
    text = (
        f"λ was chosen on {counted(guard.dev_queries, 'dev query')} ({origin}) for "
        f"--expected-documents {guard.expected_documents}{assumed}. "
        f"Train contains {guard.dev_seen:.0%} of dev's documents"
    )
    text += "." if guard.test_seen is None else f" and {guard.test_seen:.0%} of test's."
    if guard.expected_documents == "both":
        changes = (
            f"{points(part['final'] - part['base'])} points ({part['queries']:,.0f} about {name})"
            for name, part in (guard.dev_parts or {}).items()
        )
        text += f" By kind of dev query: {', '.join(changes)}."
    return text


def warnings_of(guard: GuardRecord) -> Iterator[str]:
    """List the reasons to trust the choice less."""
    expected_seen = 0.0 if guard.expected_documents == "new" else guard.test_seen
    if expected_seen is not None and guard.dev_seen - expected_seen > NEWER:
        documents = "test" if guard.test_seen is not None else "future"
        yield (
            f"warning: {documents} documents are newer than dev's (train has "
            f"{expected_seen:.0%} of them, and {guard.dev_seen:.0%} of dev's), so the scores on "
            "dev may be too high"
        )
    if guard.expected_documents == "both" and len(guard.dev_parts or ()) < 2:
        parts = ", ".join(guard.dev_parts or ("no documents",))
        yield (f"warning: dev has queries only about {parts}, so it cannot tell for the other kind")
    if guard.dev_queries < FEW_QUERIES:
        yield (
            f"warning: {counted(guard.dev_queries, 'dev query')} "
            f"{'is' if guard.dev_queries == 1 else 'are'} few to choose by; {FEW_QUERIES} or more "
            "are better"
        )
    if guard.test is not None and guard.test.high < 0:
        contrast = ", although it rose on dev" if guard.dev.difference > 0 else ""
        yield f"warning: {guard.measure} fell on test{contrast}"


@dataclass(frozen=True)
class Change:
    """The change of a measure on the test queries, from the base model to the final model.

    Attributes:
        difference: mean of the final minus the base measure.
        low: lower end of its 95% interval over the queries.
        high: upper end of the interval.
    """

    difference: float
    low: float
    high: float

    @classmethod
    def of(cls, differences: NDArray[np.float64]) -> Change:
        """Average the differences of the queries, float64 ``[queries]``, with the interval."""
        return cls(float(differences.mean()), *mean_interval(differences, bounds=DIFFERENCE))

    def interval_in_points(self) -> str:
        """The interval for a table: ``+0.3 to +2.1``; empty for a single query."""
        if (self.low, self.high) == OF_ONE_QUERY:
            return ""
        return f"{points(self.low)} to {points(self.high)}"

    def in_points(self) -> str:
        """The change for a table: ``+1.2 (+0.3 to +2.1)``."""
        interval = self.interval_in_points()
        return points(self.difference) + (f" ({interval})" if interval else "")


def change(per_query: pa.Table, measure: str, before: str, after: str) -> Change:
    """Compare two columns of a measure, such as those of ``base`` and ``final``, on each query."""
    first, second = (per_query[column(name, measure)].to_numpy() for name in (before, after))
    return Change.of(second - first)


def changes_on_test(per_query: pa.Table, measures: Iterable[str]) -> dict[str, Change]:
    """Compare the base and the final model on each query, by the measures that the table has.

    Args:
        per_query: a row per test query, from :meth:`opera.run_folder.folder.Run.per_query`.
        measures: names of measures.
    """
    return {
        name: change(per_query, name, "base", "final")
        for name in measures
        if {column("base", name), column("final", name)} <= set(per_query.column_names)
        and per_query.num_rows
    }
