"""Registries of methods, losses and the like, which users choose by name and can extend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from opera.core.arrays import T
from opera.core.errors import InputError, SettingError, nearest
from opera.core.terminal import error_summary, shortened

GROUP = "opera.extensions"
"""Entry points of installed packages that extend OPERA."""
EXTENSIONS = "OPERA_EXTENSIONS"
"""Environment variable with the names of users' modules, separated by commas."""
NUMBA_SETTINGS = Path(".numba_config.yaml")
"""numba reads this file in the current folder. It can make numba load compiled code from another
folder."""

RECIPE_FOLDERS = [Path(__file__).parents[1] / "recipes"]
"""Folders of recipes with a name: OPERA's folder, then folders of extensions."""


class Registry(dict[str, T]):
    """Things by name, in the order of registration.

    Args:
        kind: the kind of thing, for error messages, such as ``"method"``.
        shipped: names that OPERA ships. They are valid before the defining module is loaded.
    """

    def __init__(self, kind: str, shipped: Iterable[str] = ()) -> None:
        super().__init__()
        self.kind, self._shipped = kind, tuple(shipped)

    @property
    def names(self) -> list[str]:
        """All names, starting with the shipped names."""
        return list(dict.fromkeys([*self._shipped, *self]))

    @property
    def choices(self) -> str:
        """All names, and the source of more, for messages."""
        return f"{', '.join(self.names)}, or a name that a module in {EXTENSIONS} registers"

    def register(self, name: str, thing: T) -> T:
        """Register a user's thing and return it. The same thing may be registered again, for
        example when its module is reloaded.

        Raises:
            ValueError: if another thing has the name. Upper and lower case are equal.
        """
        taken = self.spelling(name)
        if taken is not None and (taken not in self or _origin(self[taken]) != _origin(thing)):
            raise ValueError(f"a {self.kind} named '{taken}' is already registered")
        self[name] = thing
        return thing

    def decorator(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class or function under ``name``."""
        return lambda thing: self.register(name, thing)

    def spelling(self, name: str) -> str | None:
        """Return the registered spelling of a name in upper or lower case, or ``None``."""
        return {known.casefold(): known for known in self.names}.get(name.casefold())

    def find(self, name: str) -> T:
        """Look up an object by its name in upper or lower case.

        Raises:
            SettingError: if the name is unknown; suggests the nearest name.
        """
        known = self.spelling(name)
        if known is None:
            near = nearest(name.lower(), self.names)
            raise SettingError(
                f"unknown {self.kind} '{shortened(name)}'{near} (known: {self.choices})"
            )
        return self[known]


def register_recipes(folder: Path) -> None:
    """Make the recipes of a folder known by name: ``fiqa`` is ``FOLDER/fiqa.yaml``."""
    if folder not in RECIPE_FOLDERS:
        RECIPE_FOLDERS.append(folder)


def _origin(thing: Any) -> tuple[str, str]:
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))


def check_surroundings() -> None:
    """Check that the current folder has no settings of numba, before numba is imported.

    Raises:
        InputError: if there is such a file, because it could make numba run code.
    """
    if os.path.lexists(NUMBA_SETTINGS):
        raise InputError(
            f"{NUMBA_SETTINGS}: numba would read its settings from this file of the current "
            "folder, and they can make it run code; remove the file and set its values as "
            "variables NUMBA_..., or run the command elsewhere"
        )


@cache
def installed_extensions() -> dict[str, str]:
    """Return the extension modules of installed packages, with the package for error messages."""
    return {point.module: f"the package {point.name}" for point in entry_points(group=GROUP)}


def load_extensions() -> None:
    """Import the extension modules of installed packages and of ``OPERA_EXTENSIONS``.

    A package declares its module as an entry point of the group ``opera.extensions``.

    Raises:
        InputError: if a module cannot be imported, with its origin; or if
            :func:`check_surroundings` raises it.
    """
    check_surroundings()
    from_variable = filter(None, map(str.strip, os.environ.get(EXTENSIONS, "").split(",")))
    origins = {**installed_extensions(), **dict.fromkeys(from_variable, EXTENSIONS)}
    for name, origin in origins.items():
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{origin}: the module '{name}' cannot be imported: {error_summary(error)}"
            ) from error
