"""The base of all settings: frozen, typed, with help at the declaration, all mistakes reported at
once."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from opera.core.arguments import plain
from opera.core.arrays import T
from opera.core.errors import SettingError, nearest
from opera.core.registry import Registry
from opera.core.terminal import shortened, shown

LISTING = "opera train --help-settings lists all"

RULES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "string_unicode": "text in UTF-8",
    "bool_type": "true or false",
    "finite_number": "a finite number",
}
"""Short rules for some of pydantic's error types, whose messages are long."""


def setting(default: Any, help: str, source: str, *, flag: str = "", **bounds: Any) -> Any:
    """Declare a setting: its default, its help, the source of the default, and its bounds.

    ``flag`` is its option on the command line, if it has one. ``bounds`` are pydantic's (``gt``,
    ``ge``, ``lt``, ``le``).

    Examples:
        >>> from opera.methods import Settings, setting
        >>> class SoftmaxSettings(Settings):
        ...     sharpness: float = setting(5.0, "how much to prefer similar pairs", "OPERA", ge=0)
        >>> SoftmaxSettings.parse({"sharpness": 2}).sharpness
        2.0
    """
    extra: dict[str, Any] = {"source": source, "flag": flag}
    return Field(default=default, description=help, json_schema_extra=extra, **bounds)


def extra_of(field: FieldInfo, name: str) -> str:
    """Return the ``source`` or the ``flag`` of a setting."""
    return str((field.json_schema_extra or {}).get(name, ""))  # type: ignore[union-attr]


def resolved(value: T | None) -> T:
    """Return the value of an automatic setting, after :func:`opera.config.automatic.resolve`."""
    if value is None:
        raise RuntimeError(
            "a setting is still automatic: call opera.config.automatic.resolve first"
        )
    return value


@dataclass(frozen=True)
class SettingDoc:
    """One setting of ``opera train --help-settings``."""

    name: str
    kind: str
    default: str
    help: str
    source: str


@dataclass(frozen=True, eq=False)
class OneOf:
    """Accepts the names of a registry, as in ``Annotated[str, OneOf(...)]``."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        name = self.registry.spelling(value)
        if name is None:
            raise ValueError(f"must be {self.registry.choices}")
        return name


class Settings(BaseModel):
    """A frozen group of settings. It rejects unknown names.

    Examples:
        >>> from opera.methods import Settings, setting
        >>> class Sharpness(Settings):
        ...     sharpness: float = setting(5.0, "how much to prefer similar pairs", "OPERA", ge=0)
        >>> Sharpness().sharpness
        5.0
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False
    )
    listing: ClassVar[str] = LISTING

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return plain(value)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build the group from a mapping.

        Raises:
            SettingError: with every unknown key and every value that breaks a rule.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingError(*explain(error, cls.model_fields, cls.listing)) from None

    @classmethod
    def docs(cls) -> list[SettingDoc]:
        """Describe the settings of the group, in the order of their declaration."""
        return [
            SettingDoc(
                name=name,
                kind=kind_of(
                    Annotated[field.annotation, *field.metadata]
                    if field.metadata
                    else field.annotation
                ),
                default="auto" if field.default is None else str(field.default),
                help=(field.description or "") + (flag and f" ({flag})"),
                source=extra_of(field, "source"),
            )
            for name, field in cls.model_fields.items()
            for flag in [extra_of(field, "flag")]
        ]


def explain(error: ValidationError, known: Mapping[str, Any], listing: str = LISTING) -> list[str]:
    """Turn a pydantic error into sentences, one per mistake."""
    sentences = []
    for mistake in error.errors():
        name = ".".join(str(part) for part in mistake["loc"][:1])
        if mistake["type"] == "extra_forbidden":
            sentences.append(unknown_setting(name, known, listing))
        else:
            broken = RULES.get(mistake["type"])
            message = mistake["msg"] if broken is None else f"must be {broken}"
            rule = re.sub("^(Input|String) should ", "must ", message.removeprefix("Value error, "))
            # a validator may already show the part of the value that is wrong
            shows_value = mistake["type"] == "value_error" and ", got " in rule
            got = "" if shows_value else f", got {shown(mistake['input'])}"
            sentences.append(f"{name}: {rule}{got}" if name else rule)
    return list(dict.fromkeys(sentences))


def unknown_setting(name: str, known: Mapping[str, Any], listing: str = LISTING) -> str:
    """Say that ``name`` is not a setting, and which setting has the nearest name."""
    return f"unknown setting '{shortened(name)}'{nearest(name, known)} ({listing})"


def leaves(annotation: Any) -> set[Any]:
    """Return the members of a union type, without ``Annotated``."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return leaves(inner[0])
    return (
        set().union(*map(leaves, inner))
        if get_origin(annotation) in (Union, types.UnionType)
        else {annotation}
    )


def kind_of(annotation: Any) -> str:
    """Return a setting's type as text: ``int``, ``float``, ``random | hard | given``."""
    origin = get_origin(annotation)
    if choices := next(
        (part for part in get_args(annotation)[1:] if isinstance(part, OneOf)), None
    ):
        return " | ".join(choices.registry.names)
    if origin is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation))
    if origin in (Union, types.UnionType):
        return " | ".join(kind_of(part) for part in get_args(annotation) if part is not type(None))
    if origin is Annotated:
        return kind_of(get_args(annotation)[0])
    if origin is tuple:
        if Ellipsis not in get_args(annotation):
            return "LO:HI"
        return "N,N,..." if get_args(annotation)[0] is int else "list"
    return getattr(annotation, "__name__", str(annotation))
