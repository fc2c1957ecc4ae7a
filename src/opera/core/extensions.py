"""Modules of users, imported before a name is looked up, so that what they register is known everywhere."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from opera.core.errors import InputError

VARIABLE = "OPERA_EXTENSIONS"
"""Environment variable with the names of the modules, separated by commas."""
NUMBA_SETTINGS = Path(".numba_config.yaml")
"""numba reads this file in the current folder; it can name the folder from which numba loads compiled code."""


def check_surroundings() -> None:
    """Check what Python and numba were told before anything of OPERA's ran.

    Raises:
        InputError: naming a file of the current folder that could make numba run code, or an option of Python.
    """
    if os.path.lexists(NUMBA_SETTINGS):
        raise InputError(
            f"{NUMBA_SETTINGS}: numba would take settings from this file of the current folder, and these can make it "
            "run code; remove it and set its values as variables NUMBA_..., or run the command elsewhere"
        )
    if sys.flags.optimize > 1:
        raise InputError(
            "PYTHONOPTIMIZE=2, or python -OO: transformers needs its docstrings; use 1, or unset it"
        )


def load_extensions() -> None:
    """Import the modules that ``OPERA_EXTENSIONS`` names; those already imported are left alone.

    Raises:
        InputError: naming the variable and the module that cannot be imported; or as :func:`check_surroundings`.
    """
    check_surroundings()
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{VARIABLE}: the module '{name}' cannot be imported: {reason}"
            ) from error
