"""A recipe: everything that decides a run apart from its data and model.

It is built from flat values, or read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opera.config.optimisation import (
    WITHOUT_EFFECT,
    as_fields,
    check_trainer_fields,
    is_trainer_field,
)
from opera.config.training import FLAGS, GROUPS, TrainSettings
from opera.config.yaml import read_recipe
from opera.core.arguments import expand_user, kind_of_place
from opera.core.environment import require
from opera.core.errors import SettingError, nearest
from opera.core.registry import RECIPE_FOLDERS
from opera.core.settings import SettingDoc, Settings, resolved, unknown_setting
from opera.core.terminal import shortened
from opera.methods import AUTO, METHODS, Method, Plan, method_named

ALTERNATIVES = ({"max_steps", "epochs"}, {"global_batch_size", "per_device_train_batch_size"})
"""Settings that mean the same; an explicit setting replaces both of them in a recipe."""


ADAPT_ARGUMENTS = (
    *("data", "also", "model", "out", "resume", "overwrite", "callbacks", "config"),
    *("columns", "encoding", "skip_bad_rows", "first_stage", "depth", "max_length"),
)
"""Arguments of :func:`opera.adapt` or of ``opera train`` that are not settings."""

ALIASES = {
    flag[2:].replace("-", "_"): name
    for name, flag in FLAGS.items()
    if flag[2:].replace("-", "_") != name
}
"""The short names of options, which are valid in Python and YAML too."""


class Recipe(Settings):
    """Everything that decides a run, apart from its data and model.

    Attributes:
        method: the method's name.
        train: the settings of all methods.
        method_settings: the settings of this method.
    """

    method: str
    train: TrainSettings
    method_settings: Any

    @property
    def method_class(self) -> type[Method[Any]]:
        """The method."""
        return METHODS[self.method]

    def plan(self, processes: int) -> Plan:
        """Return the plan of the method; automatic settings must be resolved."""
        train = self.train
        return Plan(train.seed, resolved(train.max_steps), train.queries_per_step(processes))

    def flat(self) -> dict[str, Any]:
        """Return all settings by name, as ``run.json`` holds them."""
        values = {"method": self.method, **dict(self.train), **self.method_settings.model_dump()}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def identity(self) -> dict[str, Any]:
        """Return the settings that change a result, by name. Runs are the same if these agree."""
        effective = {
            name: value
            for name, value in (self.train.trainer or {}).items()
            if name not in WITHOUT_EFFECT
        }
        return {**self.flat(), "trainer": effective or None}


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from flat values: ``method`` (default ``auto``), settings of training and of
    the method.

    Raises:
        SettingError: with every mistake: unknown names with the nearest known name, values out of
            range, settings that contradict each other, settings of another method.
        MissingExtraError: if the package for LoRA is not installed.
    """
    values = with_full_names(values)
    method = method_named(str(values.pop("method", AUTO)))
    kinds: tuple[type[Settings], ...] = (TrainSettings, method.settings_class)
    known = {name: kind for kind in kinds for name in kind.model_fields}
    mistakes = [_misplaced(name, method, known) for name in values if name not in known]
    built: list[Any] = []
    for kind in kinds:
        try:
            built.append(kind.parse({n: v for n, v in values.items() if n in kind.model_fields}))
        except SettingError as error:
            mistakes += error.lines
    if mistakes:
        raise SettingError(*mistakes)
    train, method_settings = built
    if train.lora is not None:
        require("peft", "lora")
    if train.trainer is not None:
        check_trainer_fields(train.trainer)
    return Recipe(method=method.name, train=train, method_settings=method_settings)


def with_full_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the short names of settings by the full names, and move fields of the trainer into
    ``trainer``.

    Raises:
        SettingError: if a setting is given by both names, or ``trainer`` is not a mapping.
    """
    for short, full in ALIASES.items():
        if short in values and full in values:
            raise SettingError(f"given twice, as {short} and as {full}: leave one of them out")
    settings = {ALIASES.get(name, name): value for name, value in values.items()}
    unknown = [name for name in settings if name not in {*_groups(), *ADAPT_ARGUMENTS, "method"}]
    if fields := {name: settings.pop(name) for name in unknown if is_trainer_field(name)}:
        settings["trainer"] = {**as_fields(settings.get("trainer") or {}), **fields}
    return settings


def _groups() -> dict[str, type[Settings]]:
    """Return the group that declares each setting of training or of a method.

    Raises:
        SettingError: if a setting of a method has the name of a setting of training.
    """
    for name, method in METHODS.items():
        if taken := method.settings_class.model_fields.keys() & TrainSettings.model_fields.keys():
            raise SettingError(
                f"method {name}: its setting {min(taken)!r} has the name of a setting of training; "
                "rename it"
            )
    groups: list[type[Settings]] = [
        *(method.settings_class for method in METHODS.values()),
        TrainSettings,
    ]
    return {name: group for group in groups for name in group.model_fields}


def docs_by_group() -> dict[str, list[SettingDoc]]:
    """Describe the settings of training by group, then the settings of methods."""
    kinds = dict.fromkeys(method.settings_class for method in METHODS.values())
    groups = dict(GROUPS)
    for kind in kinds:
        names = [name for name, method in METHODS.items() if method.settings_class is kind]
        if kind.model_fields:
            groups[f"method {', '.join(names)}"] = kind
    return {name: group.docs() for name, group in groups.items()}


def _misplaced(name: str, method: type[Method[Any]], known: Iterable[str]) -> str:
    """Say why ``name`` is not a setting of this run."""
    methods = [other for other, cls in METHODS.items() if name in cls.settings_class.model_fields]
    if not methods:
        return unknown_name(name, known)
    return (
        f"setting '{name}' applies only to {', '.join(methods)}; this run's method is {method.name}"
    )


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is not a setting, and what to use instead."""
    if name in ADAPT_ARGUMENTS:
        return f"'{name}' is not a setting; pass --{name}, or {name}=... in Python"
    return unknown_setting(name, dict.fromkeys([*known, "method"]))


def recipes_by_name() -> dict[str, Path]:
    """Return the recipes that have a name, such as ``models/bge-m3``, in alphabetical order."""
    recipes = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for folder in RECIPE_FOLDERS
        for path in folder.rglob("*.yaml")
    }
    return dict(sorted(recipes.items()))


def recipe_path(source: str | Path) -> Path:
    """Return the file of a recipe.

    Args:
        source: a name of :func:`recipes_by_name`, or a file. If a file has the name of a recipe,
            ``./NAME`` means the file.

    Raises:
        SettingError: if there is no such recipe or file.
    """
    text, recipes = expand_user(source, "--config"), recipes_by_name()
    if text in recipes:
        return recipes[text]
    if kind_of_place(Path(text)) is None:
        raise SettingError(
            f"--config {shortened(text)}: no such file, and no recipe has that name"
            f"{nearest(text, recipes)}"
        )
    return Path(text)


def recipe(
    *sources: str | Path | Mapping[str, Any], methods: Iterable[str] | None = None
) -> dict[str, Any]:
    """Read recipes and merge their settings; a later recipe replaces settings of earlier ones.

        opera.adapt("my-data", model="BAAI/bge-m3", out="run", **opera.recipe("models/bge-m3"))

    Args:
        sources: names of recipes, such as ``models/bge-m3``, YAML files, or settings.
        methods: the methods in use. OPERA's own recipes then lose settings that only other methods
            have; by default they keep all.

    Returns:
        Settings by their full names, as :func:`opera.adapt` and :func:`opera.compare` take them.

    Raises:
        SettingError: if a recipe cannot be read, or its settings are unknown or out of bounds.

    Examples:
        >>> opera.recipe("models/bge-m3")["max_passage_length"]
        512
    """
    merged: dict[str, Any] = {}
    for source in sources:
        if isinstance(source, Mapping):
            merged = override(merged, with_full_names(source))
            continue
        path = recipe_path(source)
        values = _checked(read_recipe(path), f"--config {shortened(str(source))}")
        if methods is not None and path in recipes_by_name().values():
            of_methods = (method_named(name).settings_class.model_fields for name in methods)
            known = {"method"}.union(TrainSettings.model_fields, *of_methods)
            values = {name: value for name, value in values.items() if name in known}
        merged = override(merged, values)
    return merged


def override(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings by later settings with the same name or meaning."""
    explicit = {name for name, value in later.items() if value is not None}
    replaced = {name for group in ALTERNATIVES if group & explicit for name in group - explicit}
    remaining = {name: value for name, value in earlier.items() if name not in replaced}
    merged = {**remaining, **later}
    if earlier.get("trainer") and later.get("trainer"):
        merged["trainer"] = {**as_fields(earlier["trainer"]), **as_fields(later["trainer"])}
    return merged


def _checked(values: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Check the settings of a recipe, because merged settings do not say where they come from.

    Settings that contradict each other may still be replaced by a later recipe.
    """
    settings = with_full_names(values)
    groups: dict[str, type[Settings]] = {**_groups(), "method": Settings}
    mistakes = [unknown_name(name, groups) for name in settings if name not in groups]
    for group in dict.fromkeys(groups.values()):
        members = {name: settings[name] for name in group.model_fields if name in settings}
        try:
            group.parse(members)
        except SettingError as error:
            mistakes += [line for line in error.lines if line.partition(":")[0] in members]
    if mistakes:
        raise SettingError(*(f"{option}: {line}" for line in mistakes))
    return settings
