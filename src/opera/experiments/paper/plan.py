"""What a reproduction runs: a table's rows become cells of a grid, recipes and preset settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from opera.config.recipe import PRESETS, override, read_recipes, recipe_names
from opera.core.errors import SettingError, nearest
from opera.core.paths import expand_user
from opera.core.settings import LISTING
from opera.core.terminal import shown
from opera.data.catalogue import PAPER_SETS, PaperSet
from opera.experiments.analysis import format_settings
from opera.experiments.grid.compare import grid_record
from opera.experiments.grid.plan import (
    AXIS_SETTINGS,
    Cell,
    GridAxes,
    GridPart,
    check_lists,
    parsed_axis,
    plan_parts,
)
from opera.experiments.paper.tables import (
    HUB_IDS,
    PRETRAINED,
    QWEN3,
    SUMMARIES,
    PaperRow,
    PaperTable,
    data_key,
    table_rows,
)
from opera.methods import METHODS
from opera.retrieval.locate import MINILM
from opera.retrieval.prompts import model_names
from opera.runs.record import GridRecord

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

OF_DATA = ("max_steps", "negatives", "range", "relevant_grade")
"""What a data set's recipe decides; preset and model have the rest."""
PAPERS_QWEN3 = ("trainer",)
"""What the paper's own recipe of Qwen3 adds to the model's."""
RELEASES_QWEN3: Mapping[str, Any] = {
    "negatives": "hard", "range": "51:500", "max_query_length": 512,
    "trainer": {"gradient_checkpointing": True},
}  # fmt: skip
"""What the release's configuration of Qwen3 has on every data set."""
SCALES = ("full", "small")
"""The paper's own size, or a small one that takes the same way in minutes, by another model."""
SMALL_SETTINGS = {"global_batch_size": 16}
MINILM_SETTINGS = {"max_query_length": 64, "max_passage_length": 128}
MOST_DOCUMENTS = 100_000
"""The largest corpus that a small reproduction takes without being asked for by name."""
FEWEST_STEPS, MOST_STEPS, PER_DOUBLING, DOUBLED_FROM = 20, 50, 4, 500
MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper, made anew in a grid's folder.

    Attributes:
        table: the table.
        out: the grid's folder.
        scale: one of :data:`SCALES`.
        given_model: the model that all runs start from; ``None`` for the table's or the scale's.
        preset: ``paper`` or ``release``.
        methods: only these methods; ``None`` for all of the table's.
        given_seeds: seeds of each row; ``None`` for the scale's.
        settings: settings that the user gave, before all others.
        data: data sets as ``NAME``, several of them with commas between, or ``NAME=SOURCE``;
            ``None`` for all that fit the scale.
    """

    table: PaperTable
    out: Path
    scale: str
    given_model: str | None
    preset: str
    methods: tuple[str, ...] | None
    given_seeds: tuple[int, ...] | None
    settings: Mapping[str, Any]
    data: Sequence[str] | None

    @property
    def small(self) -> bool:
        """Whether the rows differ from the paper's in their steps."""
        return self.scale == "small"

    @property
    def model(self) -> str:
        """The model that all runs start from."""
        return self.given_model or (MINILM if self.small else HUB_IDS[self.table.model])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of each row."""
        if self.given_seeds is not None:
            return self.given_seeds
        return (0,) if self.small else (0, 1, 2)

    def steps(self, paper: int) -> int:
        """Turn the paper's number of steps into ours.

        Small ones grow with its logarithm, so that rows stay apart.
        """
        if not self.small:
            return paper
        doublings = math.log2(max(paper, DOUBLED_FROM) / DOUBLED_FROM)
        return min(MOST_STEPS, FEWEST_STEPS + round(PER_DOUBLING * doublings))

    @cached_property
    def sources(self) -> dict[str, str]:
        """Where each data set is read from, by its name in the catalogue; looks at no data."""
        known = {entry.name: entry for entry in sets_of_table(self.table)}
        if self.data is not None:
            return _named_sources(self.table, list(known), self.data)
        if left := self.left_out:
            known = {name: entry for name, entry in known.items() if name not in left}
            if not known:
                raise SettingError(*(f"{name}: {reason}" for name, reason in left.items()))
        return {name: entry.source for name, entry in known.items()}

    def source_of_cells(self, name: str) -> str:
        """Where cells read a data set: for noisy labels, from a folder with wrong pairs."""
        return str(self.out / f"{name}-noisy") if self.table.noisy else self.sources[name]

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Why data sets of the table are left out, though not by name."""
        if self.data is not None or not self.small:
            return {}
        return {
            entry.name: f"{entry.documents:,} documents are many for --scale small; --data "
            f"{entry.name} takes it all the same"
            for entry in sets_of_table(self.table)
            if entry.documents > MOST_DOCUMENTS
        }

    @cached_property
    def trained(self) -> list[tuple[PaperRow, str, str, int]]:
        """The rows to train: each with its data set's name in the catalogue, label and steps."""
        found = []
        for row in trained_rows(self.table):
            name, (method, own) = set_of_row(row).name, row_method(self.table, row)
            if name in self.sources and (self.methods is None or method in self.methods):
                usual = method_settings(method, self.preset)
                apart = {key: value for key, value in own.items() if value != usual[key]}
                label = ":".join([method, *(format_settings({k: v}) for k, v in apart.items())])
                steps = row.steps or self.table.steps or self.by_set[name]["max_steps"]
                found.append((row, name, label, self.steps(steps)))
        return found

    @cached_property
    def by_set(self) -> dict[str, dict[str, Any]]:
        """The settings on each data set."""
        return {name: self.data_settings(PAPER_SETS[name]) for name in self.sources}

    @cached_property
    def parts(self) -> list[GridPart]:
        """The parts of the grid that fill the table; SettingError for wrong settings."""
        self._check()
        labels: dict[tuple[int, int], dict[str, None]] = {}
        names = list(self.sources)
        for _, name, label, steps in self.trained:
            labels.setdefault((names.index(name), steps), {})[label] = None
        parts = []
        for (at, steps), own in sorted(labels.items()):
            shared = {k: v for k, v in self.by_set[names[at]].items() if k != "max_steps"}
            axes = GridAxes(tuple(own), self.seeds, (steps,))
            parts.append(GridPart(self.source_of_cells(names[at]), names[at], axes, shared))
        return parts

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, their recipes checked; SettingError for wrong settings, all at once."""
        return plan_parts(self.parts, self.out)

    @property
    def record(self) -> GridRecord:
        """What ``grid.json`` says of it."""
        by_set = {part.name: dict(part.shared) for part in self.parts}
        scale = self.scale if self.small else None
        return grid_record(self.out, self.model, self.settings, self.cells, by_set, scale)

    def data_settings(self, entry: PaperSet) -> dict[str, Any]:
        """All settings on a data set: preset, its recipe, the model's, the scale's, the user's."""
        recipe = read_recipes([entry.name], self.preset)
        values = {"preset": self.preset, **{n: recipe[n] for n in OF_DATA if n in recipe}}
        values = override(values, self._model_settings())
        if self.small:
            by_model = MINILM_SETTINGS if self.model == MINILM else {}
            values = override(values, {**SMALL_SETTINGS, **by_model})
        if self.settings.get("negatives", "hard") != "hard":
            values.pop("range", None)
        return override(values, self.settings)

    def _model_settings(self) -> dict[str, Any]:
        """What the model's recipe has; a model without one has an automatic learning rate.

        Half precision is the preset's: fp16 on CUDA alone.
        """
        name = model_recipe(self.model)
        values: dict[str, Any] = {"learning_rate": None} if name is None else read_recipes([name])
        if papers_model(self.model) == self.table.model == QWEN3:
            recipe = read_recipes(["qwen3"])
            papers = {name: recipe[name] for name in PAPERS_QWEN3}
            values = override(values, papers if self.preset == "paper" else RELEASES_QWEN3)
        return {n: value for n, value in values.items() if (n, value) != ("precision", "fp16")}

    def _check(self) -> None:
        """Check what does not depend on a data set."""
        lists: dict[str, Sequence[Any]] = {"--seeds": self.seeds}
        check_lists(lists if self.methods is None else {**lists, "--methods": self.methods})
        for seed in self.seeds:
            parsed_axis("seed", seed)
        if self.preset not in PRESETS:
            rule = f"must be {' or '.join(PRESETS)}{nearest(self.preset, PRESETS)}"
            raise SettingError(f"--preset {self.preset}: {rule}")
        rows = trained_rows(self.table)
        known = list(dict.fromkeys(row_method(self.table, row)[0] for row in rows))
        for name in self.methods or ():
            if name not in known:
                rule = f"table {self.table.name} has no such method{nearest(name, known)}"
                has = f"(it has: {', '.join(known)})"
                raise SettingError(f"--methods {shown(name)[1:-1]}: {rule} {has}")
        for name in (*AXIS_SETTINGS, "preset", "epochs"):
            if name in self.settings:
                rule = "the table and its options decide it; opera compare takes any"
                raise SettingError(f"--set {name}: {rule} ({LISTING})")


def find_scale(name: str) -> str:
    """Return the name of a scale; SettingError if there is none of this name."""
    if name not in SCALES:
        raise SettingError(f"--scale {name}: must be {' or '.join(SCALES)}{nearest(name, SCALES)}")
    return name


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``K/N``: part K, from 1, of N."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MOST_SHARDS:
        rule = f"must be K/N with 1 <= K <= N <= {MOST_SHARDS:,}, such as 3/32"
        raise SettingError(f"--shard: {rule}, got {shown(text)}")
    return int(match[1]), int(match[2])


def cells_of_shard(cells: Sequence[Cell], number: int, count: int) -> list[Cell]:
    """One part of the cells; each data set's stay together, so that few encode the same corpus."""
    names = list(dict.fromkeys(cell.data_name for cell in cells))
    by_set = sorted(cells, key=lambda cell: names.index(cell.data_name))
    return by_set[len(by_set) * (number - 1) // count : len(by_set) * number // count]


def trained_rows(table: PaperTable) -> list[PaperRow]:
    """The rows of a table that are trained: neither averages nor the untrained model."""
    rows = table_rows(table.name)
    return [row for row in rows if row.data not in SUMMARIES and row.method != PRETRAINED]


def row_method(table: PaperTable, row: PaperRow) -> tuple[str, Mapping[str, Any]]:
    """The method of a row, with the settings that the table states; KeyError for other words."""
    if match := _PRUNED.fullmatch(row.method):
        pruned, decimals, percent, suffix = match.groups()
        digits = decimals or percent
        k = float(f"0.{digits}") if digits else table.retention.get(row.data, 0.25)
        return f"{pruned}{suffix or ''}".lower().replace(" (cbs)", "+cbs"), {"k": k}
    return METHODS_BY_LABEL[row.method]


def method_settings(method: str, preset: str) -> dict[str, Any]:
    """Return all settings of a method with a preset."""
    values, fields = PRESETS[preset], METHODS[method].settings_class.model_fields
    return {name: values.get(name, field.default) for name, field in fields.items()}


def set_of_row(row: PaperRow) -> PaperSet:
    """The catalogue's entry of a row's data set."""
    return next(e for e in PAPER_SETS.values() if data_key(e.title) == data_key(row.data))


def sets_of_table(table: PaperTable) -> list[PaperSet]:
    """The data sets of a table, in its order."""
    by_name = {entry.name: entry for entry in map(set_of_row, trained_rows(table))}
    return list(by_name.values())


def model_recipe(model: str) -> str | None:
    """The recipe of a model by a name it goes by: the hub's, its folder's, its configuration's."""
    folder, recipes = Path(model) if Path(model).is_dir() else None, recipe_names()
    names = [f"models/{name}" for name in model_names(model, folder)]
    return next((name for name in names if name in recipes), None)


def recipe_note(model: str) -> str:
    """Say by which recipe of a model the runs are set."""
    recipe = model_recipe(model)
    if recipe is not None:
        return f"prompts, lengths and learning rate of {recipe}, OPERA's recipe of this model"
    return (
        f"OPERA has no recipe of {shown(model)}: its own prompts and an automatic learning rate "
        "are used; a copy of a model is known by its folder's name"
    )


def papers_model(model: str) -> str | None:
    """Which of the paper's models this is, or is a copy of; ``None`` for another one."""
    recipe = model_recipe(model)
    return next((name for name in HUB_IDS if f"models/{name.lower()}" == recipe), None)


def _named_sources(table: PaperTable, known: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    listed = [[text] if "=" in text else text.split(",") for text in given]
    words = [word.strip() for part in listed for word in part if word.strip()]
    if not words:
        raise SettingError("--data: give at least one data set")
    sources: dict[str, str] = {}
    for word in words:
        name, equals, source = word.partition("=")
        if name not in known:
            rule = f"table {table.name} has no such data set{nearest(name, known)}"
            has = f"(it has: {', '.join(known)}); opera compare runs methods on data of your own"
            raise SettingError(f"--data {shown(name)[1:-1]}: {rule} {has}")
        if name in sources:
            raise SettingError(f"--data: {name} is given twice")
        sources[name] = expand_user(source, f"--data {name}") if equals else PAPER_SETS[name].source
    return sources
