"""Things that users choose by name: those that OPERA ships, and those that users register."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from opera.core.errors import SettingError, nearest
from opera.core.terminal import shortened

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
        """Register a user's thing and return it. The same one may be registered again, as when its module is reloaded.

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


def _origin(thing: Any) -> tuple[str, str]:
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))
