"""A recipe: everything that decides a run apart from its data and model, made of flat values or
read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from opera.config.presets import fitted_to_preset, with_preset, without_replaced
from opera.config.trainer import as_fields, check_trainer_fields, is_trainer_field
from opera.config.training import FLAGS, GROUPS, TrainSettings
from opera.config.yaml import read_recipe
from opera.core.errors import SettingError, nearest
from opera.core.extras import require
from opera.core.paths import expand_user, kind_of_place
from opera.core.settings import SettingDoc, Settings, explain, resolved, unknown_setting
from opera.core.terminal import shortened
from opera.data.pairs import TrainingPairs
from opera.methods import (
    AUTO,
    DEFAULT_METHOD,
    METHODS,
    PRESET_METHOD,
    Method,
    PairScores,
    Plan,
    method_named,
)
from opera.methods.mixed import MixedMethod, Mixture

ADAPT_ARGUMENTS = ("data", "model", "out", "resume", "overwrite", "callbacks", "config")
"""Arguments of :func:`opera.adapt` that are not settings."""

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

    def make_method(
        self,
        pairs: TrainingPairs,
        scores: PairScores | None,
        processes: int,
        mixture: Mixture | None = None,
    ) -> Method[Any]:
        """Make the method for some training pairs; automatic settings must be resolved.

        Args:
            pairs: the training pairs.
            scores: their pretrained scores, where the method needs them.
            processes: how many processes train together.
            mixture: how several data sets are drawn; ``None`` for one.
        """
        train = self.train
        plan = Plan(train.seed, resolved(train.max_steps), train.queries_per_step(processes))
        if mixture is not None:
            return MixedMethod(
                self.method_class, pairs, plan, self.method_settings, scores, mixture
            )
        return self.method_class(pairs, plan, self.method_settings, scores)

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

    ``preset`` supplies those that are not given.

    Raises:
        SettingError: reporting every mistake at once: unknown names with the nearest known one,
            values out of range, settings that contradict each other, settings of another method.
        MissingExtraError: if LoRA needs a package that is absent.
    """
    values = with_full_names(values)
    name = str(values.pop("method", AUTO))
    if name.lower() == AUTO:
        name = PRESET_METHOD if values.get("preset") else DEFAULT_METHOD
    method = method_named(name)
    values = with_preset(values, {*TrainSettings.flat_fields, *method.settings_class.model_fields})
    own = {
        name: value for name, value in values.items() if name in method.settings_class.model_fields
    }
    shared = {name: value for name, value in values.items() if name in TrainSettings.flat_fields}
    mistakes = [
        _misplaced(name, method) for name in values if name not in own and name not in shared
    ]
    built: list[Any] = []
    for kind, given in ((TrainSettings, shared), (method.settings_class, own)):
        try:
            built.append(kind.parse(given))
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
    full_names = {ALIASES.get(name, name): value for name, value in values.items()}
    known = {*TrainSettings.flat_fields, *_methods_settings(), *ADAPT_ARGUMENTS, "method"}
    unknown = [name for name in full_names if name not in known]
    passed = {name: full_names.pop(name) for name in unknown if is_trainer_field(name)}
    if passed:
        full_names["trainer"] = {**_fields(full_names.get("trainer")), **passed}
    return full_names


def _fields(value: Any) -> dict[str, Any]:
    try:
        return as_fields(value or {})
    except ValueError as error:
        raise SettingError(f"trainer: {error}") from None


def _methods_settings() -> set[str]:
    return set().union(*(method.settings_class.model_fields for method in METHODS.values()))


def parse_value(name: str, value: Any) -> Any:
    """Parse one training setting as a recipe stores it: ``range`` as (1, 50), however it was
    written.
    """
    field = TrainSettings.flat_fields.get(ALIASES.get(name, name))
    if field is None:
        return value
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind).validate_python(value)


def docs_by_group() -> dict[str, list[SettingDoc]]:
    """Describe every setting once: those of training by group, then those of methods."""
    methods: dict[type[Settings], list[str]] = {}
    for name, method in METHODS.items():
        if method.settings_class.model_fields:
            methods.setdefault(method.settings_class, []).append(name)
    described = {
        f"method {', '.join(names)}": settings.docs() for settings, names in methods.items()
    }
    of_training = {name: group.docs() for name, group in GROUPS.items()}
    return {**of_training, **described}


def _misplaced(name: str, method: type[Method[Any]]) -> str:
    """Say why ``name`` is no setting of this run."""
    owners = [other for other, cls in METHODS.items() if name in cls.settings_class.model_fields]
    if owners:
        plural = "s" * (len(owners) > 1)
        applies = f"setting '{name}' applies only to the method{plural} {_listed(owners)}"
        return f"{applies}; this run's method is {method.name}"
    return unknown_name(name, [*TrainSettings.flat_fields, *method.settings_class.model_fields])


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is no setting, and what to use instead."""
    if name in ADAPT_ARGUMENTS:
        return f"'{name}' is not a setting: pass it as the argument or option {name}"
    return unknown_setting(name, dict.fromkeys([*known, "method"]))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


HOME = Path(__file__).parents[1] / "recipes"
"""The folder of OPERA's own recipes, within the package."""


def recipe_names() -> list[str]:
    """List OPERA's own recipes: ``fiqa``, ``models/bge-m3``, ..."""
    return sorted(
        path.relative_to(HOME).with_suffix("").as_posix() for path in HOME.rglob("*.yaml")
    )


def recipe_path(source: str | Path) -> Path:
    """Return the file of a recipe.

    Args:
        source: a name of :func:`recipe_names`, or a file; a file whose name is also a recipe's is
            given as ``./NAME``.

    Raises:
        SettingError: if there is neither.
    """
    text = expand_user(source, "--config")
    if text in recipe_names():
        return HOME / f"{text}.yaml"
    if kind_of_place(Path(text)) is None:
        raise SettingError(
            f"--config {shortened(text)}: no such file, and OPERA has no recipe of that name"
            f"{nearest(text, recipe_names())}"
        )
    return Path(text)


def read_recipes(sources: Iterable[str | Path], preset: str | None = None) -> dict[str, Any]:
    """Read recipes and merge their settings, under their full names; a later recipe replaces
    settings of earlier ones.

    OPERA's own recipes of data sets hold the paper's settings. Beside a preset they leave to it
    what it is about: :func:`opera.config.presets.fitted_to_preset`. Files of users stay as they
    are.

    Args:
        sources: what :func:`recipe_path` takes.
        preset: the preset that is given besides; ``None`` for that of the recipes, if one names it.

    Raises:
        SettingError: naming the recipe that cannot be read, or whose settings are unknown or out of
            their bounds.
    """
    read = []
    for source in sources:
        path = recipe_path(source)
        read.append((path, _checked(read_recipe(path), f"--config {shortened(str(source))}")))
        preset = preset or read[-1][1].get("preset")
    merged: dict[str, Any] = {}
    for path, values in read:
        merged = override(
            merged, fitted_to_preset(values, preset) if path.parent == HOME else values
        )
    return merged


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
    try:
        full = with_full_names(values)
    except SettingError as error:
        raise SettingError(*(f"{place}: {line}" for line in error.lines)) from None
    mistakes = [mistake for name, value in full.items() for mistake in _mistakes(name, value)]
    if mistakes:
        raise SettingError(*(f"{place}: {mistake}" for mistake in mistakes))
    return full


def _mistakes(name: str, value: Any) -> list[str]:
    """List what is wrong with one setting, whatever the others are."""
    if name == "method":
        return []
    owners: list[type[Settings]] = [TrainSettings]
    owners += [method.settings_class for method in METHODS.values()]
    owner = next((owner for owner in owners if name in owner.model_fields), None)
    if owner is None:
        return [unknown_name(name, [*TrainSettings.flat_fields, *_methods_settings()])]
    try:
        owner(**{name: value})
    except ValidationError as error:
        lines = explain(error, owner.model_fields)
        return [line for line in lines if line.startswith(f"{name}: ")]
    return []
