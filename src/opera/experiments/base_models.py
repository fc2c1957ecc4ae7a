"""Which base model to use: quality after training, against the time to encode documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opera.core.figures import PRIMARY, column, in_points, points
from opera.core.terminal import counted
from opera.data.names import DataName
from opera.experiments.encoding_time import EncodingRecord
from opera.experiments.groups import Group, MeanStd
from opera.experiments.significance import (
    PairedTest,
    corrected_tests,
    differences,
    paired_tests_within,
    query_values,
)

CLEARLY_FASTER = 1.2
"""A model is faster than another only by this factor or more: timings vary."""


@dataclass(frozen=True)
class BaseModel:
    """One base model's row in the table of base models.

    Attributes:
        model: its short name.
        method: the method that trained it: the recommended one, or the first if none is.
        base: nDCG@10 before training.
        final: nDCG@10 after training.
        gain: nDCG@10 after against before training; ``None`` with fewer than two test queries.
        best: nDCG@10 of the best model after training against this one, Holm-corrected over the
            models; ``None`` for the best model itself.
        encoding: the cost of the final model; ``None`` if ``opera compare`` did not measure it.
    """

    model: str
    method: str
    base: MeanStd
    final: MeanStd
    gain: PairedTest | None
    best: PairedTest | None
    encoding: EncodingRecord | None


@dataclass(frozen=True)
class BaseModels:
    """The base models on one data set.

    Attributes:
        data: the data set, as the user named it.
        name: its short name.
        rows: one result per base model.
    """

    data: DataName
    name: str
    rows: tuple[BaseModel, ...]

    @property
    def best(self) -> BaseModel:
        """The model with the highest nDCG@10 after training."""
        return max(self.rows, key=lambda row: row.final.mean)

    @property
    def equals(self) -> list[BaseModel]:
        """The models that the best one is not measurably better than, and that model itself."""
        return [row for row in self.rows if row.best is None or not row.best.better]

    @property
    def recommended(self) -> BaseModel:
        """The best model; or, if it is not measurably better, one that is clearly faster."""
        best, times = self.best, self._times
        if len(times) < len(self.equals):
            return best
        fastest = min(self.equals, key=lambda row: times[row.model])
        is_slower = times[best.model] >= CLEARLY_FASTER * times[fastest.model]
        return fastest if is_slower else best

    @property
    def _times(self) -> dict[str, float]:
        """The seconds of the models that are about equal, by name, if they were measured."""
        rows = self.equals
        return {row.model: row.encoding.seconds for row in rows if row.encoding is not None}

    @property
    def conclusion(self) -> str:
        """Say which base models training improves, and which one to use, without the last full
        stop.
        """
        if any(row.gain is None or row.best is None for row in self.rows if row is not self.best):
            return "No conclusion about the base models: there are too few test queries"
        return f"{self._gains()}. {self._choice()}"

    def as_dict(self) -> dict[str, Any]:
        """The table, the model to use and the conclusion, for JSON."""
        rows = [
            {**asdict(row), "encoding": row.encoding and row.encoding.model_dump()}
            for row in self.rows
        ]
        choice = {"recommended": self.recommended.model, "conclusion": self.conclusion}
        return {"data": str(self.data), "name": self.name, "rows": rows, **choice}

    def _gains(self) -> str:
        better = [
            f"{row.model} by {points(row.gain.difference).removeprefix('+')}"
            for row in self.rows
            if row.gain is not None and row.gain.better
        ]
        if not better:
            return "Training makes no base model measurably better"
        of_all = f"{len(better)} of {counted(len(self.rows), 'base model')}"
        return f"Training makes {of_all} better: {', '.join(better)} points of {PRIMARY}"

    def _choice(self) -> str:
        best, use, times = self.best, self.recommended, self._times
        if use.best is not None:  # faster than the best model
            return (
                f"Use {use.model}: {best.model} is not measurably better ({_change(use.best)}), "
                f"and {use.model} encodes 10,000 documents in {seconds_text(times[use.model])} "
                f"instead of {seconds_text(times[best.model])}"
            )
        if len(self.equals) == 1:
            gains = (f"{_change(row.best)}, over {row.model}" for row in self.rows if row.best)
            return f"Use {use.model}: {'; '.join(gains)}"
        others = ", ".join(row.model for row in self.equals if row is not best)
        is_known = len(times) == len(self.equals)
        speed = "no other is clearly faster" if is_known else "their speed was not measured"
        return (
            f"Use {use.model}: it has the highest {PRIMARY}, {in_points(best.final.mean)}, but not "
            f"measurably more than {others}; {speed}"
        )


def compare_models(
    name: str, groups: Sequence[Group], encodings: Mapping[str, EncodingRecord]
) -> BaseModels:
    """Compare base models on the test queries of a data set.

    Args:
        name: the name of the data set.
        groups: the runs of each base model.
        encodings: the cost of a final model of each base model, if it was measured.
    """
    final = column("final", PRIMARY)
    values = {group.model: query_values(group, final) for group in groups}
    best = max(groups, key=lambda group: group.mean_std(PRIMARY).mean).model
    tests = corrected_tests(
        {
            model: differences(values[best], others)
            for model, others in values.items()
            if model != best
        }
    )
    rows = tuple(
        BaseModel(
            model=group.model,
            method=group.method,
            base=group.mean_std(PRIMARY, "base"),
            final=group.mean_std(PRIMARY),
            gain=paired_tests_within([group]).get(group.method),
            best=tests.get(group.model),
            encoding=encodings.get(group.model),
        )
        for group in groups
    )
    return BaseModels(groups[0].data, name, rows)


def _change(test: PairedTest) -> str:
    return f"{points(test.difference)} points of {PRIMARY}, 95% interval {test.interval_in_points}"


def seconds_text(seconds: float) -> str:
    """Write seconds with two decimals below 10, else without."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:,.0f} s"
