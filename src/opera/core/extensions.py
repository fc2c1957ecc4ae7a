"""Modules of users, imported before a name is looked up, so that what they register is known everywhere."""

from __future__ import annotations

import os
from importlib import import_module

from opera.core.errors import InputError

VARIABLE = "OPERA_EXTENSIONS"
"""Environment variable with the names of the modules, separated by commas."""


def load_extensions() -> None:
    """Import the modules that ``OPERA_EXTENSIONS`` names; those already imported are left alone.

    Raises:
        InputError: naming the variable and the module that cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"{VARIABLE}: the module '{name}' cannot be imported: {reason}") from error
