"""The facts that all readers of a finished run show, each decided once; and a run in words: was it
worth it, what is its final model, what does keyword search add?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.figures import (
    DEFAULT_MEASURES,
    DIFFERENCE,
    FEW_QUERIES,
    LEAST_QUERIES,
    OF_ONE_QUERY,
    PRIMARY,
    SUCCESS,
    column,
    in_points,
    index_sentence,
    mean_interval,
    points,
)
from opera.core.terminal import command_line, counted
from opera.data.names import command_words
from opera.run_folder.record import GuardRecord, NoisyLabelsRecord, RunRecord


@dataclass(frozen=True)
class Change:
    """The change of a measure on the test queries, from one model to another.

    Attributes:
        difference: mean of the second minus the first model.
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
        ends = self.low, self.high
        return "" if ends == OF_ONE_QUERY else " to ".join(map(points, ends))

    def cells(self) -> tuple[str, str]:
        """The difference and the interval as cells of a table."""
        return points(self.difference), self.interval_in_points()

    def in_points(self) -> str:
        """The change in one cell: ``+1.2 (+0.3 to +2.1)``."""
        difference, interval = self.cells()
        return f"{difference} ({interval})" if interval else difference


@dataclass(frozen=True)
class RunSummary:
    """The facts about a finished run.

    Attributes:
        folder: the run folder.
        record: the contents of ``run.json``.
        measures: the contents of ``measures.json``.
        queries: how many test queries there are.
        changes: from the base to the final model on the test queries, by measure.
        verdict: whether the run was worth it, as :func:`verdict_of`; ``None`` without a guard.
        bm25: from the final model to keyword search; ``None`` without keyword search.
        hybrid: from the final model to both together; ``None`` without a weight for that.
    """

    folder: Path
    record: RunRecord
    measures: Mapping[str, Mapping[str, float]]
    queries: int
    changes: Mapping[str, Change]
    verdict: str | None
    bm25: Change | None
    hybrid: Change | None

    @classmethod
    def of(
        cls,
        folder: Path,
        record: RunRecord,
        measures: Mapping[str, Mapping[str, float]],
        per_query: pa.Table,
    ) -> RunSummary:
        """Summarise a run; ``per_query`` has a row per test query."""
        changes = {name: _change(per_query, name, "base", "final") for name in measures["final"]}
        return cls(
            folder,
            record,
            measures,
            per_query.num_rows,
            {name: change for name, change in changes.items() if change is not None},
            None if record.guard is None else verdict_of(record.guard),
            _change(per_query, PRIMARY, "final", "bm25"),
            _change(per_query, PRIMARY, "final", "hybrid"),
        )

    @property
    def bm25_compared(self) -> str | None:
        """Compare keyword search alone with the final model; ``None`` if it is worse."""
        if self.bm25 is None or self.bm25.difference < 0:
            return None
        is_better = self.bm25.low > 0 and self.queries >= LEAST_QUERIES
        return "better than" if is_better else "at least as good as"

    def next_commands(self, grid: Path | None = None) -> dict[str, str]:
        """Return the commands that come next, by name. A grid has a report for all of its runs."""
        folder, sets = self.folder, self.record.sets
        # a search takes one data set
        searched = [*command_words(sets[0].source), "--model", folder] if sets else [folder]
        commands = {
            "review": command_line("review", folder),
            "show": command_line("show", folder),
            "search": f'{command_line("search", *searched)} "your question"',
            "report": command_line("report", grid or folder),
        }
        if self.record.settings["query_vectors"] is not None:
            del commands["search"]  # the run has no model to embed a question
        return commands

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "run": str(self.folder),
            "verdict": self.verdict,
            "measures": self.measures,
            "changes": {name: vars(change) for name, change in self.changes.items()},
            **self.record.model_dump(
                include={"guard", "noisy_labels", "index", "matryoshka", "sets", "cutoffs"}
            ),
        }


def _change(per_query: pa.Table, measure: str, before: str, after: str) -> Change | None:
    """Compare two models on each query; ``None`` if a column is missing or the table is empty."""
    names = [column(before, measure), column(after, measure)]
    if not (per_query.num_rows and set(names) <= set(per_query.column_names)):
        return None
    values_before, values_after = (per_query[name].to_numpy() for name in names)
    return Change.of(values_after - values_before)


def verdict_of(guard: GuardRecord) -> str:
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


NEWER = 0.1
"""If the fraction of documents in train is higher for dev than for test by more, OPERA warns."""
MANY_VISITS = 2000
"""With fewer visits the model has learnt little when it ranks a pair, so correct pairs look wrong
too."""


def headlines(summary: RunSummary) -> list[str]:
    """Say how often the right document is found, whether the run was worth it, what its final
    model is, what keyword search adds, and what to do next.

    If keyword search alone is at least as good as the final model, the second line says so.
    """
    guard, queries = summary.record.guard, counted(summary.queries, "test query")
    means = {model: values[PRIMARY] for model, values in summary.measures.items()}
    lines = [successes_sentence(summary)]
    if guard is not None:
        lines += [f"{verdict_sentence(guard)}.", f"{weight_sentence(guard)}."]
    else:
        base, final = means["base"], means["final"]
        lines += [
            f"{_values(PRIMARY, base, final, final - base)} on {queries}.",
            f"The final model: the fine-tuned weights; {no_guard(summary.record)}.",
        ]
    if summary.record.index is not None:
        lines.append(index_sentence(summary.record.index["final"], summary.record.index["base"]))
    if summary.bm25 is not None:
        lines.append(_keyword_sentence(summary, means))
    if (compared := summary.bm25_compared) is not None:
        lines.insert(
            1,
            f"Keyword search (BM25) alone is {compared} the final model: {PRIMARY} "
            f"{in_points(means['bm25'])} against {in_points(means['final'])} on {queries}.",
        )
    return [*lines, f"{next_step_sentence(summary)}."]


def no_guard(record: RunRecord) -> str:
    """Say why a run has no guard, without the full stop."""
    if record.model.head_of is None:
        return "the guard is off"
    return (
        f"the {record.model.head_of} model has a new head, so the base model is measured as a "
        "dense model, and there is nothing to mix"
    )


def successes_sentence(summary: RunSummary) -> str:
    """Say for how many test queries a relevant document is among the first ten of each model."""
    found = {
        model: round(values[SUCCESS] * summary.queries)
        for model, values in summary.measures.items()
    }
    queries, base, final = summary.queries, found["base"], found["final"]
    before = "as before" if base == final else f"it was for {base:,} before"
    keywords = f" Keyword search finds it for {found['bm25']:,}." if "bm25" in found else ""
    return (
        f"The right document is among the first ten for {final:,} of {queries:,} held-out "
        f"{'question' if queries == 1 else 'questions'}; {before}.{keywords}"
    )


NOISY = 0.05
"""OPERA gives advice about noisy labels if the interval of the noise rate lies above this."""
NO_GAIN = "more labels, or another base model (opera compare with several --model), may help"
NEXT_STEPS = {
    "better": "use the final model",
    "better on dev": "use the final model, and measure it on test queries when you have some",
    "better on dev, not confirmed on test": "use the final model; more test queries would confirm "
    "the gain",
    "better on test, not confirmed on dev": "use the final model; more dev queries would confirm "
    "the gain",
    "no significant gain": f"keep the base model, or test more; {NO_GAIN}",
    "base model kept": f"keep the base model; {NO_GAIN}",
    "better on dev, worse on test": f"keep the base model; {NO_GAIN}",
    "worse on test": f"keep the base model; {NO_GAIN}",
}
"""What to do after each verdict."""


def next_step_sentence(summary: RunSummary) -> str:
    """Say what to do with the result: the most promising step, without the full stop."""
    labels, hybrid = summary.record.noisy_labels, summary.hybrid
    if labels is not None and labels.low >= NOISY:
        return "Next: review the labels that look wrong, and train again"
    if hybrid is not None and hybrid.low > 0:
        return "Next: search with the final model and keyword search together"
    if summary.bm25_compared is not None:
        return "Next: search with keywords, or try a larger base model"
    verdict, change = summary.verdict, summary.changes.get(PRIMARY)
    if verdict is None:  # without a guard, only test can tell
        verdict = "better" if change is not None and change.low > 0 else "no significant gain"
    few = f"collect more labels; a verdict needs {LEAST_QUERIES} dev queries or more"
    return f"Next: {NEXT_STEPS.get(verdict, few)}"


def _keyword_sentence(summary: RunSummary, means: Mapping[str, float]) -> str:
    """Say what keyword search adds to the final model on test."""
    alone = f"BM25 alone: {in_points(means['bm25'])}"
    keywords = summary.record.keywords
    if keywords is None or summary.hybrid is None:
        return f"{alone}."
    if not any(keywords.weights.values()):
        return f"With keyword search: no gain on dev, so its weight is 0; {alone}."
    weights = ", ".join(
        f"{weight:g}" + f" for {name}" * (len(keywords.weights) > 1)
        for name, weight in keywords.weights.items()
    )
    return (
        f"With keyword search (w = {weights}): {PRIMARY} {in_points(means['hybrid'])}, "
        f"{summary.hybrid.in_points()} against the final model; {alone}."
    )


def verdict_sentence(guard: GuardRecord) -> str:
    """Say in one sentence whether the run was worth it, without the full stop."""
    keeps_base = guard.dev_verdict == "kept"
    # with the base weights, the final model is equal to the base model on test
    measured = guard.dev if keeps_base or guard.test is None else guard.test
    changed = measured.fine_tuned if keeps_base else measured.final
    assert changed is not None, "dev has the fine-tuned model's mean"
    difference = changed - measured.base if keeps_base else measured.difference
    interval = f", 95% interval {points(measured.low)} to {points(measured.high)}"
    if keeps_base or measured.queries < LEAST_QUERIES:
        interval = ""
    change = _values(guard.measure, measured.base, changed, difference, interval)
    words, split = verdict_of(guard), "dev" if measured is guard.dev else "test"
    text = f"{words}: fine-tuning changes {change}" if keeps_base else f"{words}: {change}"
    return f"{text[0].upper()}{text[1:]} on {counted(measured.queries, f'{split} query')}"


def _values(
    measure: str, before: float, after: float, difference: float, interval: str = ""
) -> str:
    values = f"{measure} {in_points(before)} -> {in_points(after)}"
    return f"{values} ({points(difference)}{interval})"


def weight_sentence(guard: GuardRecord) -> str:
    """Say what the weights of the final model are, and on how many queries they were chosen."""
    weight, queries = guard.mixing_weight, counted(guard.dev_queries, "dev query")
    mixture = f"{100 * weight:g}% fine-tuned, {100 * (1 - weight):g}% base weights"
    weights = {0.0: "the base weights", 1.0: "the fine-tuned weights"}.get(weight, mixture)
    return f"The final model: {weights} (λ = {weight:g}), chosen on {queries}"


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
            f"{points(kind['final'] - kind['base'])} points ({kind['queries']:,.0f} about {name})"
            for name, kind in (guard.dev_parts or {}).items()
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


def labels_sentence(estimate: NoisyLabelsRecord) -> str:
    """Say how many training pairs look wrong, without the final full stop."""
    too_high = "" if estimate.visited >= MANY_VISITS else ", probably too high"
    digits = 0 if estimate.high >= 0.1 else 1  # so that a small rate is not "0% to 0%"
    text = (
        f"About {estimate.noise_rate:.{digits}%} of the training pairs look wrong "
        f"({estimate.low:.{digits}%} to {estimate.high:.{digits}%}{too_high})"
    )
    if estimate.pruned:
        text += f", not counting {counted(estimate.pruned, 'pruned pair')}"
    if estimate.unvisited:
        text += f"; {counted(estimate.unvisited, 'pair')} never sampled and not judged"
    return text


def run_html(summary: RunSummary) -> str:
    """Return the verdict, the noise line and the table of measures as HTML."""
    lines = headlines(summary)
    if (estimate := summary.record.noisy_labels) is not None:
        lines.append(f"{labels_sentence(estimate)}. opera.review(run) shows them.")
    base, final = summary.measures["base"], summary.measures["final"]
    rows = [
        ("measure", "base", "final", "points", "95% interval"),
        *(
            (name, in_points(base[name]), in_points(final[name]), *summary.changes[name].cells())
            for name in DEFAULT_MEASURES
        ),
    ]
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    first, *rest = map(escape, lines)
    text = "<br>".join([f"<b>{first}</b>", *rest])
    return f"<p>{text}</p><table>{table}</table><p>{escape(str(summary.folder))}</p>"
