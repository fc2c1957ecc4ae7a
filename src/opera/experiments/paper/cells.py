"""Which runs a table of the paper takes: its rows become methods and steps, recipes and preset become settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opera.config.presets import PRESETS
from opera.config.recipe_files import override, read_recipes, recipe_names
from opera.core.errors import SettingError, nearest
from opera.core.settings import LISTING
from opera.core.terminal import shown
from opera.data.catalogue import PAPER_SETS, PaperSet
from opera.experiments.analysis import format_settings
from opera.experiments.grid.axes import AXIS_SETTINGS, GridAxes, check_lists, parsed_axis
from opera.experiments.grid.plan import GridPart
from opera.experiments.paper.matching import PRETRAINED, MethodSpec, data_key, matching_methods
from opera.experiments.paper.readings import method_settings
from opera.experiments.paper.scale import Scale
from opera.experiments.paper.tables import (
    HUB_IDS,
    QWEN3,
    SUMMARIES,
    PaperRow,
    PaperTable,
    table_rows,
)
from opera.retrieval.prompts import model_names

NOISY = {"antique": "antique-noisy"}
"""Recipes with the false positives of Table 7."""
OF_DATA = ("max_steps", "negatives", "range", "relevant_grade", "noise", "noise_grade")
"""What a data set's recipe decides; preset and model have the rest."""
PAPERS_QWEN3 = ("gradient_accumulation_steps",)
"""What the paper's own recipe of Qwen3 adds to the model's."""
RELEASES_QWEN3: Mapping[str, Any] = {
    "negatives": "hard", "range": "51:500", "max_query_length": 512, "gradient_checkpointing": True,
}  # fmt: skip
"""What the release's configuration of Qwen3 has on every data set."""


@dataclass(frozen=True)
class TableSettings:
    """What all rows of a reproduction share.

    Attributes:
        table: the table.
        model: the model that all runs start from.
        preset: ``paper`` or ``release``.
        scale: the size.
        methods: only these methods; ``None`` for all of the table's.
        seeds: seeds of each row.
        settings: settings that the user gave, before all others.
    """

    table: PaperTable
    model: str
    preset: str
    scale: Scale
    methods: tuple[str, ...] | None
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]

    def check(self) -> None:
        """Check what does not depend on a data set.

        Raises:
            SettingError: for an unknown preset or method, for bad seeds, and for settings that the table decides.
        """
        check_lists(
            {"--seeds": self.seeds, **({} if self.methods is None else {"--methods": self.methods})}
        )
        for seed in self.seeds:
            parsed_axis("seed", seed)
        if self.preset not in PRESETS:
            raise SettingError(
                f"--preset {self.preset}: must be {' or '.join(PRESETS)}{nearest(self.preset, PRESETS)}"
            )
        known = list(
            dict.fromkeys(
                spec.method
                for row in trained_rows(self.table)
                for spec in [row_method(self.table, row)]
            )
        )
        for name in self.methods or ():
            if name not in known:
                raise SettingError(
                    f"--methods {shown(name)[1:-1]}: table {self.table.name} has no such method{nearest(name, known)} "
                    f"(it has: {', '.join(known)})"
                )
        for name in (*AXIS_SETTINGS, "preset", "epochs"):
            if name in self.settings:
                raise SettingError(
                    f"--set {name}: the table and its options decide it; opera compare takes any ({LISTING})"
                )


def trained_rows(table: PaperTable) -> list[PaperRow]:
    """The rows of a table that are trained: neither averages nor the pretrained model."""
    return [
        row
        for row in table_rows(table.name)
        if row.data not in SUMMARIES and row.method != PRETRAINED
    ]


def row_method(table: PaperTable, row: PaperRow) -> MethodSpec:
    """The method of a row, with the settings that the table states."""
    return matching_methods(row.method, table.retention.get(row.data, 0.25))[0]


def sets_of_table(table: PaperTable) -> list[PaperSet]:
    """The data sets of a table, in its order."""
    by_key = {data_key(entry.title): entry for entry in PAPER_SETS.values()}
    return [by_key[key] for key in dict.fromkeys(data_key(row.data) for row in trained_rows(table))]


def title_in_table(table: PaperTable, entry: PaperSet) -> str:
    """What a table calls a data set."""
    return next(
        row.data for row in trained_rows(table) if data_key(row.data) == data_key(entry.title)
    )


def data_settings(shared: TableSettings, entry: PaperSet) -> dict[str, Any]:
    """All settings of the runs on a data set: preset, then its recipe, the model's, the scale's and the user's."""
    table, scale = shared.table, shared.scale
    recipe = read_recipes(
        [NOISY[entry.name] if table.noise == "grade" else entry.name], shared.preset
    )
    values: dict[str, Any] = {
        "preset": shared.preset,
        **{name: recipe[name] for name in OF_DATA if name in recipe},
    }
    values = override(values, _model_settings(shared))
    own = {**scale.settings, **(scale.model_settings if shared.model == scale.model else {})}
    if shared.settings.get("negatives", "hard") != "hard":
        values.pop("range", None)
    return override(override(values, own), shared.settings)


def model_recipe(model: str) -> str | None:
    """The recipe of a model, known by a name that it goes by: the hub's, its folder's, or its configuration's."""
    folder = Path(model) if Path(model).is_dir() else None
    recipes = recipe_names()
    return next(
        (f"models/{name}" for name in model_names(model, folder) if f"models/{name}" in recipes),
        None,
    )


def recipe_note(model: str) -> str:
    """Say by which recipe of a model the runs are set."""
    recipe = model_recipe(model)
    if recipe is not None:
        return f"prompts, lengths and learning rate of {recipe}, OPERA's recipe of this model"
    return (
        f"OPERA has no recipe of {shown(model)}: its own prompts and an automatic learning rate are used; a copy of a "
        "model is known by its folder's name"
    )


def papers_model(model: str) -> str | None:
    """Which of the paper's models this is, or is a copy of; ``None`` for another one."""
    recipe = model_recipe(model)
    return next((name for name in HUB_IDS if f"models/{name.lower()}" == recipe), None)


def _model_settings(shared: TableSettings) -> dict[str, Any]:
    """What the model's recipe has; a model without one has an automatic learning rate.

    Half precision is the preset's: fp16 on CUDA alone.
    """
    name = model_recipe(shared.model)
    values: dict[str, Any] = {"learning_rate": None} if name is None else read_recipes([name])
    if papers_model(shared.model) == shared.table.model == QWEN3:
        recipe = read_recipes(["qwen3"])
        values |= (
            {name: recipe[name] for name in PAPERS_QWEN3}
            if shared.preset == "paper"
            else dict(RELEASES_QWEN3)
        )
    return {name: value for name, value in values.items() if (name, value) != ("precision", "fp16")}


def table_parts(shared: TableSettings, sources: Mapping[str, str]) -> list[GridPart]:
    """The parts of the grid that fill a table.

    Args:
        shared: what all rows share.
        sources: where each data set is read from, by its name in the catalogue.
    """
    parts = []
    for name, source in sources.items():
        entry = PAPER_SETS[name]
        values = data_settings(shared, entry)
        recipe_steps = values.pop("max_steps")
        by_steps: dict[int, list[str]] = {}
        for row in trained_rows(shared.table):
            spec = row_method(shared.table, row)
            if data_key(row.data) == data_key(entry.title) and (
                shared.methods is None or spec.method in shared.methods
            ):
                steps = shared.scale.steps(row.steps or shared.table.steps or recipe_steps)
                by_steps.setdefault(steps, []).append(_label(spec, shared.preset))
        parts += [
            GridPart(
                source, name, GridAxes(tuple(dict.fromkeys(labels)), shared.seeds, (steps,)), values
            )
            for steps, labels in sorted(by_steps.items())
        ]
    return parts


def _label(spec: MethodSpec, preset: str) -> str:
    """The method with the settings that set the row apart from the preset."""
    usual = method_settings(spec.method, preset, {})
    own = {name: value for name, value in spec.settings.items() if value != usual[name]}
    return ":".join([spec.method, *format_settings(own).split(", ")]) if own else spec.method
