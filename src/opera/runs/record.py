"""The typed contents of ``run.json``, ``measures.json`` and ``grid.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    field_validator,
)

from opera.core.errors import OtherFormatError
from opera.core.files import replace_file
from opera.core.terminal import shown
from opera.runs.cutoffs import CutoffRecord
from opera.runs.reading import Part, read_model, read_object

FORMAT: Literal[6] = 6
"""Raised whenever a field changes its name or meaning; runs of other formats are refused."""


GRID_FILE = "grid.json"
MANY_VISITS = 2000
"""With fewer visits the model has learnt little when it first ranks a pair, so correct pairs look
wrong too."""


class DataRecord(Part):
    """The data set of a run.

    Attributes:
        source: what the user called it.
        fingerprint: SHA-256 of everything that was read, in hex.
        counts: documents, and queries and relevant pairs of each split.
        notes: what reading the data merged, dropped or drew.
    """

    source: str
    fingerprint: str
    counts: dict[str, int]
    notes: list[str]


class ModelRecord(Part):
    """The pretrained model of a run.

    Attributes:
        source: what the user called it.
        fingerprint: SHA-256 of its weights and of all else that decides an embedding, in hex.
        parameters: how many it has.
    """

    source: str
    fingerprint: str
    parameters: int


class NegativesRecord(Part):
    """The explicit negatives.

    Attributes:
        kind: ``random``, ``hard``, ``given``, or a user's own kind.
        queries_without: queries whose list is empty, so that theirs are random; ``None`` where
            there are no lists.
        listed: length of all lists together.
    """

    kind: str
    queries_without: int | None = None
    listed: int | None = None


class NoisyLabelsRecord(Part):
    """How many training pairs look wrong by their first visits (docs/noisy-labels.md).

    Attributes:
        noise_rate: estimated fraction of the pairs that are wrong.
        low: lower end of its 95% interval, by the standard error over queries.
        high: upper end.
        visited: how many pairs were visited; the rate is that of the later half of them.
        suspicious: how many of them ``suspicious_pairs.csv`` lists.
        pruned: how many pairs were pruned before training, of which nothing is known.
        unvisited: how many others were never drawn; the rate includes them, the list does not.
    """

    noise_rate: float
    low: float
    high: float
    visited: int
    suspicious: int
    pruned: int = 0
    unvisited: int = 0

    @property
    def sentence(self) -> str:
        """Say how many look wrong, without the full stop."""
        interval = f"{self.low:.0%} to {self.high:.0%}"
        pruned = f", the {self.pruned:,} pruned ones aside" if self.pruned else ""
        never = f"; {self.unvisited:,} were never drawn and are not judged"
        rest = pruned + (never if self.unvisited else "")
        least = "about" if self.visited >= MANY_VISITS else "up to about"
        return f"{least} {self.noise_rate:.0%} of the training pairs look wrong ({interval}){rest}"


class TrainingRecord(Part):
    """How training went.

    Attributes:
        steps: optimizer steps done, over all sessions.
        resumed_from: the step that the last session started from; 0 for a fresh start.
        best_step: step of the best evaluation on dev; ``None`` without evaluations.
        best_value: its measure.
        evaluations: step and measure of each evaluation on dev.
        lag: steps between an observation and the first draw that uses it.
        measure: name of what evaluations measured.
    """

    steps: int
    resumed_from: int
    best_step: int | None
    best_value: float | None
    evaluations: list[tuple[int, float]]
    lag: int
    measure: str | None = None


class CurvePoint(Part):
    """A point of the dev curve.

    Attributes:
        mixing_weight: λ, the weight of the fine-tuned parameters.
        mean: mean of the measure over the dev queries.
    """

    mixing_weight: float
    mean: float


class GuardedMeasure(Part):
    """The measure of a split, before training and after it.

    Attributes:
        base: mean of the base model.
        fine_tuned: mean of the fine-tuned model, λ = 1.
        final: mean of the final model.
        difference: ``final`` minus ``base``.
        low: lower end of the difference's 95% interval, Student's t over the queries.
        high: upper end of the interval.
        queries: how many there are.
    """

    queries: int
    base: float
    fine_tuned: float
    final: float
    difference: float
    low: float
    high: float


class SecondTraining(Part):
    """The training with the drawn dev split in train beside the one without it, both at the share
    chosen, on dev.

    Attributes:
        trial: mean of the measure, of the training that chose the share.
        second: of the second training, which has seen the dev queries.
        error: standard error of the mean of their differences.
        kept: whether the second is handed over: it is not behind by more than ``error``.
    """

    trial: float
    second: float
    error: float
    kept: bool


class GuardRecord(Part):
    """What the guard chose, and why.

    Attributes:
        mixing_weight: λ, the weight of the fine-tuned parameters in the final model.
        verdict: ``better``: the interval on dev, of 20 queries or more, lies above 0; ``kept``: λ
            is 0, so the base model is handed over; ``same``: neither.
        measure: the measure that decides.
        future: what tomorrow's queries are taken to ask about, which decides how dev was drawn and
            how λ is chosen.
        expected_documents_given: whether the user said so.
        dev_given: whether the dev split came with the data; else it was drawn from train.
        dev_queries: how many queries it has.
        dev_documents: how many documents they were ranked among; ``None`` for the whole corpus.
        dev_seen: share of its relevant pairs whose document train names.
        test_seen: fraction of the test split's relevant pairs whose document train names. Only
            ``like-test`` reads it, and nothing else of test; otherwise ``None``.
        curve: the measure on dev at every share tried.
        dev: the measure on dev, of the training that chose the share; ``final`` measures each half
            of the queries at the share that the other half chooses.
        test: the measure on test, of the models of ``measures.json``; ``None`` until it is
            measured.
        refit: whether the final model was trained again, with the dev split in train.
        second: the second training beside the first; ``None`` if there was none.
        dev_parts: for each of several data sets, or each kind of ``expected_documents=both``: the
            number of dev ``queries``, and their means ``base``, ``fine_tuned`` and ``final``.
    """

    mixing_weight: float = Field(ge=0, le=1)
    verdict: Literal["better", "same", "kept"]
    measure: str
    expected_documents: str
    expected_documents_given: bool
    dev_given: bool
    dev_queries: int
    dev_documents: int | None = None
    dev_seen: float
    test_seen: float | None
    curve: list[CurvePoint]
    dev: GuardedMeasure
    test: GuardedMeasure | None = None
    refit: bool
    second: SecondTraining | None = None
    dev_parts: dict[str, dict[str, FiniteFloat]] | None = None


class SetRecord(Part):
    """One of several data sets of a run.

    Attributes:
        name: stands before its ids.
        source: what the user called it.
        fingerprint: SHA-256 of everything that was read of it, in hex.
        counts: documents, and queries and relevant pairs of each split.
        share_of_draws: its share of all pairs drawn; ``None`` until training is done.
        test: means over its test queries, by measure, ``base``, ``fine_tuned`` and ``final``;
            ``None`` until they are measured, or where it has no test split.
    """

    name: str
    source: str
    fingerprint: str
    counts: dict[str, int]
    share_of_draws: float | None = None
    test: dict[str, dict[str, FiniteFloat]] | None = None


def mean_of_sets(sets: Sequence[SetRecord]) -> dict[str, dict[str, float]] | None:
    """Average the measures over the data sets with a test split; ``None`` without one."""
    tests = [part.test for part in sets if part.test is not None]
    if not tests:
        return None
    return {
        when: {name: sum(test[when][name] for test in tests) / len(tests) for name in values}
        for when, values in tests[0].items()
    }


class SizeRecord(Part):
    """Measures on test of the first dimensions of the embeddings alone.

    Attributes:
        size: how many dimensions.
        base: means over the test queries, by measure, of the base model.
        fine_tuned: of the fine-tuned model.
        final: of the final model.
    """

    size: int
    base: dict[str, FiniteFloat]
    fine_tuned: dict[str, FiniteFloat]
    final: dict[str, FiniteFloat]


class Measures(Part):
    """``measures.json``: means over the test queries, by measure.

    Attributes:
        base: of the base model.
        fine_tuned: of the fine-tuned model.
        final: of the final model.
    """

    base: dict[str, FiniteFloat]
    fine_tuned: dict[str, FiniteFloat]
    final: dict[str, FiniteFloat]


class RunRecord(Part):
    """``run.json``.

    Attributes:
        format: :data:`FORMAT`.
        status: ``running`` until the last measure is written, then ``finished``; ``failed`` after
            an error. A run that was killed, or stopped by Ctrl-C, stays ``running``.
        started: when the run was first started, UTC, ISO 8601.
        identity: what must be equal to resume: all settings as given, processes, fingerprints of
            data and model.
        data: the data set.
        model: the pretrained model.
        device: where it trained.
        processes: how many trained together.
        seed: the seed.
        settings: all settings with their automatic values filled in.
        versions: of Python and of the libraries that decide the result.
        seconds: duration of each phase, over all sessions.
        method: facts about the method on these data, such as how many pairs it kept.
        negatives: the explicit negatives.
        smallest_cbs_pool: fewest documents that a pair was ranked among for its CBS; ``None``
            without CBS.
        noisy_labels: how many training pairs look wrong; ``None`` until training is done, and where
            too few were visited.
        training: how training went; ``None`` until it is done.
        guard: what the guard chose; ``None`` until it has, and with ``guard=false``.
        matryoshka: measures of each size of the setting ``matryoshka``, the largest first; ``None``
            without it.
        sets: where a run trains on several data sets, what there is to know of each; ``None`` for
            one.
        cutoffs: the scores below which the final model should not answer; ``None`` until it is
            measured.
    """

    format: Literal[6] = FORMAT
    status: Literal["running", "failed", "finished"]
    started: str
    identity: dict[str, Any]
    data: DataRecord
    model: ModelRecord
    device: str
    processes: int
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]
    seconds: dict[str, float]
    method: dict[str, Any] = Field(default_factory=dict)
    negatives: NegativesRecord | None = None
    smallest_cbs_pool: int | None = None
    noisy_labels: NoisyLabelsRecord | None = None
    training: TrainingRecord | None = None
    guard: GuardRecord | None = None
    matryoshka: list[SizeRecord] | None = None
    sets: list[SetRecord] | None = None
    cutoffs: CutoffRecord | None = None

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read ``run.json``.

        Raises:
            OtherFormatError: if another version of OPERA wrote it.
            RunFolderError: if it was edited into something else.
        """
        values = read_object(path)
        if values.get("format", 1) != FORMAT:
            raise OtherFormatError(
                f"{path}: was written by another version of OPERA (format "
                f"{shown(values.get('format', 1))}; this one "
                f"reads {FORMAT}); use that version, or train again with --overwrite"
            )
        return read_model(path, cls, values)


class GridRecord(BaseModel):
    """``grid.json``: what all cells of a grid share, and where their runs lie.

    Attributes:
        model: the model that all cells start from.
        settings: the settings that all cells share, by full name, as JSON holds them.
        cells: run folders of the cells of all calls, relative to the grid's folder.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    model: str
    settings: dict[str, Any]
    cells: list[str] = []

    @field_validator("cells")
    @classmethod
    def _stay_inside(cls, folders: Any) -> Any:
        for folder in folders:
            path = Path(folder)
            if not folder.strip() or "\0" in folder or path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{shown(folder)} is no folder inside the grid's")
        return folders

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a grid's record; RunFolderError if it is missing or not as OPERA wrote it."""
        return read_model(folder / GRID_FILE, cls)

    def write(self, folder: Path) -> None:
        """Write ``grid.json`` to an existing folder."""
        text = json.dumps(self.model_dump(), indent=2) + "\n"
        replace_file(
            folder / GRID_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8")
        )


def grid_in(folder: Path) -> GridRecord | None:
    """Read the record of the grid in a folder; ``None`` for a folder that is not a grid."""
    return GridRecord.read(folder) if os.path.lexists(folder / GRID_FILE) else None
