"""A recipe: everything that decides a run apart from its data and model, made of flat values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import TypeAdapter

from opera.config.optional import check_installed
from opera.config.presets import with_preset
from opera.config.search_index import require_index
from opera.config.trainer_arguments import check_trainer_fields
from opera.config.training import GROUPS, TrainSettings
from opera.core.errors import SettingError
from opera.core.extras import require
from opera.core.settings import SettingDoc, Settings, resolved, unknown_setting
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

ALIASES = {"steps": "max_steps", "batch_size": "per_device_train_batch_size", "lr": "learning_rate"}
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
        """The settings that change a result, likewise; runs that differ in others alone are the same."""
        return TrainSettings.with_effect(self.flat())


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from flat values: ``method`` (``auto`` if absent), any training setting, any of the method's.

    ``preset`` supplies those that are not given.

    Raises:
        SettingError: reporting every mistake at once: unknown names with the nearest known one, values out of range,
            settings that contradict each other, settings of another method.
        MissingExtraError: if the optimizer, the logging service, LoRA or the index needs a package that is absent.
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
    check_installed(train.optim, train.report_to, train.trainer)
    if train.lora is not None:
        require("peft", "lora")
    index = train.search_index
    require_index(index, f"search_index={index}")
    if train.trainer is not None:
        check_trainer_fields(train.trainer)
    return Recipe(method=method.name, train=train, method_settings=method_settings)


def with_full_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the short names of settings by their full ones.

    Raises:
        SettingError: if a setting is given by both of its names.
    """
    for short, full in ALIASES.items():
        if short in values and full in values:
            raise SettingError(f"given twice, as {short} and as {full}: leave one of them out")
    return {ALIASES.get(name, name): value for name, value in values.items()}


def parse_value(name: str, value: Any) -> Any:
    """Parse one training setting as a recipe stores it: ``range`` as (1, 50), however it was written."""
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
        return f"setting '{name}' applies only to the method{plural} {_listed(owners)}; this run's method is {method.name}"
    return unknown_name(name, [*TrainSettings.flat_fields, *method.settings_class.model_fields])


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is no setting, and what to use instead."""
    if name in ADAPT_ARGUMENTS:
        return f"'{name}' is not a setting: pass it as the argument or option {name}"
    return unknown_setting(name, dict.fromkeys([*known, "method"]))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
