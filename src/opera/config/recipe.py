"""A recipe: everything that decides a run apart from its data and model, made of flat values or
read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter

from opera.config.trainer import as_fields, check_trainer_fields, is_trainer_field
from opera.config.training import FLAGS, GROUPS, TrainSettings
from opera.config.yaml import read_recipe
from opera.core.errors import SettingError, nearest
from opera.core.extras import require
from opera.core.paths import expand_user, kind_of_place
from opera.core.registry import RECIPE_FOLDERS
from opera.core.settings import SettingDoc, Settings, unknown_setting
from opera.core.terminal import shortened
from opera.methods import AUTO, DEFAULT_METHOD, METHODS, Method, method_named

ALTERNATIVES = ({"max_steps", "epochs"}, {"global_batch_size", "per_device_train_batch_size"})
"""Settings that say the same in two ways; a setting that is given replaces
both of a recipe file.
"""


def without_replaced(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of ``values`` every setting that one of ``overrides`` says in another way."""
    named = {name for name, value in overrides.items() if value is not None}
    replaced = {name for same in ALTERNATIVES if same & named for name in same - named}
    return {name: value for name, value in values.items() if name not in replaced}


ADAPT_ARGUMENTS = (
    *("data", "model", "out", "resume", "overwrite", "callbacks", "config"),
    *("columns", "encoding", "skip_bad_rows"),
)
"""Arguments of :func:`opera.adapt` or of ``opera train`` that are not settings."""

ALIASES = {
    flag[2:].replace("-", "_"): name
    for name, flag in FLAGS.items()
    if flag[2:].replace("-", "_") != name
}
"""Short names of the command line's options; valid in Python and YAML too."""


class Recipe(Settings):
    """Everything that decides a run, apart from its data and model.

    Attributes:
        method: the method's name.
        train: the settings that are not the method's.
        method_settings: the method's own.
    """

    method: str
    train: TrainSettings
    method_settings: Any

    @property
    def method_class(self) -> type[Method[Any]]:
        """The method."""
        return METHODS[self.method]

    def flat(self) -> dict[str, Any]:
        """All settings by their flat names, as written to ``run.json``."""
        values = {"method": self.method, **self.train.flat(), **self.method_settings.model_dump()}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def identity(self) -> dict[str, Any]:
        """The settings that change a result, likewise; runs that differ in others alone are the
        same.
        """
        return TrainSettings.with_effect(self.flat())


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from flat values: ``method`` (``auto`` if absent), any training setting, any
    of the method's.

    Raises:
        SettingError: reporting every mistake at once: unknown names with the nearest known one,
            values out of range, settings that contradict each other, settings of another method.
        MissingExtraError: if LoRA needs a package that is absent.
    """
    values = with_full_names(values)
    name = str(values.pop("method", AUTO))
    if name.lower() == AUTO:
        name = DEFAULT_METHOD
    method = method_named(name)
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
    """Replace the short names of settings by their full ones, and put fields of the trainer into
    ``trainer``.

    Raises:
        SettingError: if a setting is given by both of its names, or ``trainer`` is no mapping.
    """
    for short, full in ALIASES.items():
        if short in values and full in values:
            raise SettingError(f"given twice, as {short} and as {full}: leave one of them out")
    named = {ALIASES.get(name, name): value for name, value in values.items()}
    unknown = [name for name in named if name not in {*_owners(), *ADAPT_ARGUMENTS, "method"}]
    if passed := {name: named.pop(name) for name in unknown if is_trainer_field(name)}:
        named["trainer"] = {**_fields(named.get("trainer")), **passed}
    return named


def _fields(value: Any) -> dict[str, Any]:
    try:
        return as_fields(value or {})
    except ValueError as error:
        raise SettingError(f"trainer: {error}") from None


def _owners() -> dict[str, type[Settings]]:
    """Every setting, those of methods too, and the group that declares it."""
    groups: list[type[Settings]] = [method.settings_class for method in METHODS.values()]
    groups.append(TrainSettings)
    return {name: group for group in groups for name in group.model_fields}


def parse_value(name: str, value: Any) -> Any:
    """Parse one training setting as a recipe stores it: ``range`` as (1, 50), however it was
    written.
    """
    field = TrainSettings.model_fields.get(ALIASES.get(name, name))
    if field is None:
        return value
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind).validate_python(value)


def docs_by_group() -> dict[str, list[SettingDoc]]:
    """Describe every setting once: those of training by group, then those of methods."""
    kinds = dict.fromkeys(method.settings_class for method in METHODS.values())
    groups = dict(GROUPS)
    for kind in kinds:
        names = [name for name, method in METHODS.items() if method.settings_class is kind]
        if kind.model_fields:
            groups[f"method {', '.join(names)}"] = kind
    return {name: group.docs() for name, group in groups.items()}


def _misplaced(name: str, method: type[Method[Any]], known: Iterable[str]) -> str:
    """Say why ``name`` is no setting of this run."""
    owners = [other for other, cls in METHODS.items() if name in cls.settings_class.model_fields]
    if not owners:
        return unknown_name(name, known)
    return (
        f"setting '{name}' applies only to {', '.join(owners)}; this run's method is {method.name}"
    )


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is no setting, and what to use instead."""
    if name in ADAPT_ARGUMENTS:
        return f"'{name}' is not a setting: pass it as the argument or option {name}"
    return unknown_setting(name, dict.fromkeys([*known, "method"]))


def recipes_by_name() -> dict[str, Path]:
    """Find the recipes that have a name, such as ``models/bge-m3``, in order of their names."""
    recipes = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for folder in RECIPE_FOLDERS
        for path in folder.rglob("*.yaml")
    }
    return dict(sorted(recipes.items()))


def recipe_path(source: str | Path) -> Path:
    """Return the file of a recipe.

    Args:
        source: a name of :func:`recipes_by_name`, or a file; a file whose name is also a recipe's
            is given as ``./NAME``.

    Raises:
        SettingError: if there is neither.
    """
    text, named = expand_user(source, "--config"), recipes_by_name()
    if text in named:
        return named[text]
    if kind_of_place(Path(text)) is None:
        raise SettingError(
            f"--config {shortened(text)}: no such file, and no recipe has that name"
            f"{nearest(text, named)}"
        )
    return Path(text)


def recipe(
    *sources: str | Path | Mapping[str, Any], methods: Iterable[str] | None = None
) -> dict[str, Any]:
    """Read recipes and merge their settings; a later recipe replaces settings of earlier ones.

        opera.adapt("my-data", model="BAAI/bge-m3", out="run", **opera.recipe("models/bge-m3"))

    Args:
        sources: names of recipes, such as ``models/bge-m3``, YAML files, or settings.
        methods: the methods that train: of recipes with a name, settings that only other methods
            have are left out. ``None`` leaves out nothing.

    Returns:
        Settings by their full names, as :func:`opera.adapt` and :func:`opera.compare` take them.

    Raises:
        SettingError: naming the recipe that cannot be read, or whose settings are unknown or out of
            their bounds.
    """
    merged: dict[str, Any] = {}
    for source in sources:
        if isinstance(source, Mapping):
            merged = override(merged, with_full_names(source))
            continue
        path = recipe_path(source)
        values = _checked(read_recipe(path), f"--config {shortened(str(source))}")
        if methods is not None and path in recipes_by_name().values():
            values = _for_methods(values, methods)
        merged = override(merged, values)
    return merged


def _for_methods(values: Mapping[str, Any], methods: Iterable[str]) -> dict[str, Any]:
    """Leave out the settings that none of the methods has."""
    classes: list[type[Settings]] = [TrainSettings]
    for name in methods:
        method = method_named(DEFAULT_METHOD if name.lower() == AUTO else name)
        classes.append(method.settings_class)
    known = {"method"}.union(*(owner.model_fields for owner in classes))
    return {name: value for name, value in values.items() if name in known}


def override(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings by later ones, also by those that say the same in another way
    (``epochs``).
    """
    merged = {**without_replaced(earlier, later), **later}
    if earlier.get("trainer") and later.get("trainer"):
        merged["trainer"] = {**_fields(earlier["trainer"]), **_fields(later["trainer"])}
    return merged


def _checked(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check each setting of a recipe by itself, because the merged ones no longer say where they
    come from.
    """
    full, owners = with_full_names(values), _owners()
    mistakes = [
        f"{place}: {line}"
        for name, value in full.items()
        if name != "method"
        for line in _mistakes(name, value, owners)
    ]
    if mistakes:
        raise SettingError(*mistakes)
    return full


def _mistakes(name: str, value: Any, owners: Mapping[str, type[Settings]]) -> list[str]:
    """List what is wrong with one setting, whatever the others are."""
    if name not in owners:
        return [unknown_name(name, owners)]
    try:
        owners[name].parse({name: value})
    except SettingError as error:
        return [line for line in error.lines if line.startswith(f"{name}: ")]
    return []
