"""Things that users choose by name: those that OPERA ships, and those that modules of users
register."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from opera.core.errors import InputError, SettingError, nearest
from opera.core.terminal import shortened

GROUP = "opera.extensions"
"""Entry points of installed packages that extend OPERA."""
EXTENSIONS = "OPERA_EXTENSIONS"
"""Environment variable with the names of users' modules, separated by commas."""
NUMBA_SETTINGS = Path(".numba_config.yaml")
"""numba reads this file in the current folder; it can name the folder from which numba loads
compiled code."""

RECIPE_FOLDERS = [Path(__file__).parents[1] / "recipes"]
"""Where recipes with a name are found: OPERA's own, then those of extensions."""

T = TypeVar("T")


class Registry(dict[str, T]):
    """Things by name, in the order of registration.

    Args:
        kind: what they are, for error messages, such as ``"method"``.
        shipped: names that OPERA ships, valid before the module that defines the things is loaded.
    """

    def __init__(self, kind: str, shipped: Iterable[str] = ()) -> None:
        super().__init__()
        self.kind, self._shipped = kind, tuple(shipped)

    @property
    def names(self) -> list[str]:
        """All names, the shipped ones first."""
        return list(dict.fromkeys([*self._shipped, *self]))

    def ship(self, **things: T) -> None:
        """Add the things that OPERA ships."""
        self.update(things)

    def register(self, name: str, thing: T) -> T:
        """Register a user's thing and return it. The same one may be registered again, as when its
        module is reloaded.

        Raises:
            ValueError: if the name belongs to another thing, in any case.
        """
        taken = self.spelling(name)
        if taken is not None and (taken not in self or _origin(self[taken]) != _origin(thing)):
            raise ValueError(f"a {self.kind} named '{taken}' is already registered")
        self[name] = thing
        return thing

    def registers(self, name: str) -> Callable[[T], T]:
        """Return a class or function decorator that registers under ``name``."""
        return lambda thing: self.register(name, thing)

    def spelling(self, name: str) -> str | None:
        """Return the registered spelling of a name given in any case, or ``None``."""
        return {known.casefold(): known for known in self.names}.get(name.casefold())

    def find(self, name: str) -> T:
        """Look a thing up by name, in any case.

        Raises:
            SettingError: if there is none, with the nearest name.
        """
        known = self.spelling(name)
        if known is None:
            near = nearest(name.lower(), self.names)
            raise SettingError(
                f"unknown {self.kind} '{shortened(name)}'{near} (known: {', '.join(self.names)})"
            )
        return self[known]


def register_recipes(folder: Path) -> None:
    """Make the recipes of a folder known by name: ``fiqa`` is ``FOLDER/fiqa.yaml``."""
    if folder not in RECIPE_FOLDERS:
        RECIPE_FOLDERS.append(folder)


def _origin(thing: Any) -> tuple[str, str]:
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))


def check_surroundings() -> None:
    """Check what numba would read before anything of OPERA's ran.

    Raises:
        InputError: naming a file of the current folder that could make numba run code.
    """
    if os.path.lexists(NUMBA_SETTINGS):
        raise InputError(
            f"{NUMBA_SETTINGS}: numba would take settings from this file of the current folder, "
            "and these can make it run code; remove it and set its values as variables "
            "NUMBA_..., or run the command elsewhere"
        )


@cache
def installed_extensions() -> dict[str, str]:
    """Find the modules that installed packages name, each with what names it, for messages."""
    return {point.module: f"the package {point.name}" for point in entry_points(group=GROUP)}


def load_extensions() -> None:
    """Import the modules that installed packages and ``OPERA_EXTENSIONS`` name.

    A package names its module as an entry point of the group ``opera.extensions``. Modules that
    are already imported are left alone.

    Raises:
        InputError: naming the module that cannot be imported and what names it; or as
            :func:`check_surroundings`.
    """
    check_surroundings()
    modules = installed_extensions()
    named = filter(None, map(str.strip, os.environ.get(EXTENSIONS, "").split(",")))
    for name, namer in {**modules, **dict.fromkeys(named, EXTENSIONS)}.items():
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{namer}: the module '{name}' cannot be imported: {reason}"
            ) from error
