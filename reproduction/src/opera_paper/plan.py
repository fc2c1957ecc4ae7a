"""Plan the reproduction of a table: its rows become calls of ``opera.compare``."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import opera
from opera.methods import METHODS
from opera_paper.catalogue import PAPER_SETS, PaperSet
from opera_paper.tables import (
    HUB_IDS,
    PRETRAINED,
    QWEN3,
    SUMMARIES,
    PaperRow,
    PaperTable,
    data_key,
    table_rows,
)

METHODS_BY_LABEL: dict[str, tuple[str, dict[str, Any]]] = {
    "FT": ("ft", {}),
    "InfoBatch": ("infobatch", {}),
    "DP": ("dp", {}),
    "DP (full)": ("dp", {}),
    "DP w/ Both": ("dp", {}),
    "DP w/ Query Sel.": ("dp", {"levels": "query"}),
    "DP w/ Doc Sel.": ("dp", {"levels": "document"}),
    "DP (hard cutoff)": ("dp", {"soft": False}),
    "DP (fixed-strength)": ("dp", {"alpha_start": 4, "alpha_end": 4, "v_end": 0.25}),
    "DP (α: 2→5, default)": ("dp", {}),
    "DP (α: 5→2, reversed)": ("dp", {"alpha_start": 5, "alpha_end": 2}),
    "DP (I_u = 1)": ("dp", {"update_interval": 1}),
    "DP (I_u = 10)": ("dp", {"update_interval": 10}),
    "DP (I_u = 100)": ("dp", {"update_interval": 100}),
}
_PRUNED = re.compile(r"(SP|RP)(?:\.(\d+)|(\d+))?( \(CBS\)|\+DP)?")

PRESETS = ("paper", "release")
DATA_SETTINGS = ("max_steps", "negatives", "range", "relevant_grade")
"""Settings from the recipe of a data set; the rest comes from preset and model."""
RELEASES_QWEN3 = {
    "negatives": "hard", "range": "51:500", "max_query_length": 512,
    "trainer": {"gradient_checkpointing": True},
}  # fmt: skip
"""Settings of Qwen3 in the authors' release, for all data sets."""
TABLE_SETTINGS = {"method", "max_steps", "seed", "epochs"}
"""Settings from the rows of a table and the options of the command."""
SCALES = ("full", "small")
SMALL = {"max_query_length": 32, "max_passage_length": 64, "learning_rate": 2e-5}
"""Settings of studies/transformer.py; with them, MiniLM has the paper's order on NFCorpus."""
FEWEST_STEPS, MOST_STEPS, PER_DOUBLING, DOUBLED_FROM = 60, 150, 15, 500
MOST_DOCUMENTS = 100_000
"""Maximum corpus of a small reproduction, unless ``data`` names the data set."""
PAPERS_RATE = 2.43
"""Steps per second of plain fine-tuning on FiQA with 8 A100s (Table 5)."""


@dataclass(frozen=True)
class Call:
    """One call of ``opera.compare``.

    Attributes:
        name: the data set's name in the catalogue.
        source: the data of the runs, as ``opera.load_data`` takes them.
        methods: labels of the methods, such as ``sp:k=0.5``.
        steps: optimizer steps.
        settings: the settings that all runs share.
    """

    name: str
    source: str
    methods: tuple[str, ...]
    steps: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper and how to reproduce it.

    Attributes:
        table: the table.
        out: the folder, which will hold a grid for each data set.
        scale: ``full`` is the paper's size; ``small`` uses MiniLM and few steps.
        user_model: the base model of all runs; ``None`` for the default of table and scale.
        preset: ``paper`` or ``release``.
        only_methods: the methods to train; ``None`` for all methods of the table.
        user_seeds: the seeds; ``None`` for the default of the scale.
        user_settings: settings of the user, which override all other settings.
        user_data: data sets as ``NAME`` or ``NAME=SOURCE``; ``None`` for all that fit the scale.
    """

    table: PaperTable
    out: Path
    scale: str = "full"
    user_model: str | None = None
    preset: str = "paper"
    only_methods: tuple[str, ...] | None = None
    user_seeds: tuple[int, ...] | None = None
    user_settings: Mapping[str, Any] | None = None
    user_data: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("scale", self.scale, SCALES), ("preset", self.preset, PRESETS)):
            if value not in known:
                raise opera.SettingError(f"--{name} {value}: must be {' or '.join(known)}")
        for name in TABLE_SETTINGS & (self.user_settings or {}).keys():
            advice = "use the options of this command, or opera compare"
            raise opera.SettingError(f"--set {name}: the table decides this setting; {advice}")
        methods = dict.fromkeys(row_method(self.table, row)[0] for row in trained_rows(self.table))
        for name in self.only_methods or ():
            if name not in methods:
                names = ", ".join(methods)
                rule = f"table {self.table.name} has no such method (it has: {names})"
                raise opera.SettingError(f"--methods {name}: {rule}")

    @property
    def small(self) -> bool:
        """Whether the scale is ``small``."""
        return self.scale == "small"

    @property
    def model(self) -> str:
        """The base model of all runs."""
        return self.user_model or ("minilm" if self.small else HUB_IDS[self.table.model])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all rows."""
        return self.user_seeds or ((0,) if self.small else (0, 1, 2))

    def steps(self, paper: int) -> int:
        """Convert the paper's number of steps; at the small scale, ours grow with its logarithm."""
        if not self.small:
            return paper
        doublings = math.log2(max(paper, DOUBLED_FROM) / DOUBLED_FROM)
        return min(MOST_STEPS, FEWEST_STEPS + round(PER_DOUBLING * doublings))

    @cached_property
    def sets_of_table(self) -> dict[str, PaperSet]:
        """The data sets of the table, by name, in its order."""
        return {entry.name: entry for entry in map(set_of_row, trained_rows(self.table))}

    @cached_property
    def sources(self) -> dict[str, str]:
        """The sources of the data sets, by their names in the catalogue."""
        known = self.sets_of_table
        if self.user_data is None:
            return {name: entry.source for name, entry in known.items() if name not in self.too_large}
        sources: dict[str, str] = {}
        for word in self.user_data:
            name, _, source = word.partition("=")
            if name not in known:
                rule = f"table {self.table.name} has no such data set (it has: {', '.join(known)})"
                raise opera.SettingError(f"--data {name}: {rule}")
            sources[name] = source or known[name].source
        return sources

    @property
    def too_large(self) -> list[str]:
        """Data sets that ``--scale small`` leaves out unless ``--data`` names them."""
        if self.user_data is not None or not self.small:
            return []
        return [name for name, entry in self.sets_of_table.items() if entry.documents > MOST_DOCUMENTS]

    @cached_property
    def rows(self) -> list[tuple[PaperRow, str, str, int]]:
        """The rows to train with the data set's name, the method's label and the steps."""
        rows = []
        for row in trained_rows(self.table):
            name, (method, special) = set_of_row(row).name, row_method(self.table, row)
            if name in self.sources and (self.only_methods is None or method in self.only_methods):
                label = method_label(method, special, self.preset)
                paper = row.steps or self.table.steps or self.settings(name, [method])["max_steps"]
                rows.append((row, name, label, self.steps(paper)))
        return rows

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of ``opera.compare`` that fill the table."""
        labels: dict[tuple[str, int], dict[str, None]] = {}
        for _, name, label, steps in self.rows:
            labels.setdefault((name, steps), {})[label] = None
        calls = []
        for (name, steps), by_label in labels.items():
            settings = self.settings(name, [label.partition(":")[0] for label in by_label])
            shared = {key: value for key, value in settings.items() if key not in ("max_steps", "method")}
            calls.append(Call(name, self._source_of_runs(name), tuple(by_label), steps, shared))
        return calls

    def _source_of_runs(self, name: str) -> str:
        """The data of the runs; for noisy labels, the folder with wrong pairs."""
        return str(self.out / f"{name}-noisy") if self.table.noisy else self.sources[name]

    def settings(self, name: str, methods: Sequence[str]) -> dict[str, Any]:
        """Merge the settings for a data set: preset, data set, model, scale, user; later ones win."""
        data_settings = {key: value for key, value in opera.recipe(name).items() if key in DATA_SETTINGS}
        if self.preset == "release" and "range" in data_settings:
            low, _, high = str(data_settings["range"]).partition(":")
            data_settings["range"] = f"{int(low) + 1}:{high}"  # a Python slice (erratum 13)
        user = self.user_settings or {}
        if user.get("negatives", "hard") != "hard":
            data_settings.pop("range", None)
        small = SMALL if self.small and self.model == "minilm" else {}
        recipes = (self.preset, data_settings, self._model_settings(), small, user)
        return dict(opera.recipe(*recipes, methods=methods))

    def _model_settings(self) -> dict[str, Any]:
        """The recipe of the model; a model without a recipe gets an automatic learning rate."""
        recipe = f"models/{Path(self.model).name.lower()}"
        try:
            values = opera.recipe(recipe)
        except opera.SettingError:
            return {"learning_rate": None}
        if self.table.model == QWEN3 and recipe.endswith(QWEN3.lower()):
            papers = {"trainer": opera.recipe("qwen3")["trainer"]}
            values = opera.recipe(values, papers if self.preset == "paper" else RELEASES_QWEN3)
        if values.get("precision") == "fp16" and not has_cuda():
            del values["precision"]
        return values

    def commands(self) -> list[str]:
        """The calls as commands of ``opera``, after the commands that write noisy data."""
        lines, preset = [], opera.recipe(self.preset)
        for name, source in self.sources.items() if self.table.noisy else ():
            words = ["opera-paper", "noise", source, "--kind", "grade"]
            words += ["--grade", str(PAPER_SETS[name].relevant_grade - 1)]
            lines.append(shlex.join([*words, "--out", self._source_of_runs(name)]))
        for call in self.calls:
            words = ["opera", "compare", call.source, "--model", self.model, "--config", self.preset]
            words += ["--methods", ",".join(call.methods), "--steps", str(call.steps)]
            words += ["--seeds", ",".join(map(str, self.seeds))]
            settings = {name: value for name, value in call.settings.items() if value != preset.get(name)}
            trainer = settings.pop("trainer", {})
            for name, value in {**settings, **trainer}.items():
                words += ["--set", f"{name}={_written(value)}"]
            lines.append(shlex.join([*words, "--out", str(self.out / call.name)]))
        return lines

    @property
    def hours_on_a100s(self) -> float:
        """Hours of training on eight A100s at the paper's speed, one run after another."""
        steps = sum(call.steps * len(call.methods) for call in self.calls) * len(self.seeds)
        return steps / PAPERS_RATE / 3600


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ":".join(map(str, value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def has_cuda() -> bool:
    """Whether torch finds a CUDA device."""
    import torch

    return torch.cuda.is_available()


def trained_rows(table: PaperTable) -> list[PaperRow]:
    """The rows of a table that need training, without averages and the base model."""
    rows = table_rows(table.name)
    return [row for row in rows if row.data not in SUMMARIES and row.method != PRETRAINED]


def row_method(table: PaperTable, row: PaperRow) -> tuple[str, Mapping[str, Any]]:
    """The method of a row with the settings from the table; KeyError for an unknown method."""
    if match := _PRUNED.fullmatch(row.method):
        pruned, decimals, percent, suffix = match.groups()
        digits = decimals or percent
        k = float(f"0.{digits}") if digits else table.retention.get(row.data, 0.25)
        return f"{pruned}{suffix or ''}".lower().replace(" (cbs)", "+cbs"), {"k": k}
    return METHODS_BY_LABEL[row.method]


def method_label(method: str, special: Mapping[str, Any], preset: str) -> str:
    """Label a method with the settings that differ from the preset's: ``dp:levels=query``."""
    values, fields = opera.recipe(preset), METHODS[method].settings_class.model_fields
    defaults = {name: values.get(name, field.default) for name, field in fields.items()}
    parts = (f"{name}={_written(value)}" for name, value in special.items() if value != defaults[name])
    return ":".join([method, *parts])


def set_of_row(row: PaperRow) -> PaperSet:
    """The data set of a row in the catalogue."""
    return next(e for e in PAPER_SETS.values() if data_key(e.title) == data_key(row.data))
