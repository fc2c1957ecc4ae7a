"""Everything OPERA raises on purpose.

    OperaError
    ├── InputError            what the user gave cannot be used; the command line exits with 2
    │   ├── SettingError      a setting is unknown, out of range, or contradicts another
    │   ├── DataError         a file, line or value of the data breaks a rule
    │   ├── ModelError        the model cannot be loaded or is not what it claims to be
    │   ├── RunFolderError    the output folder is not free, or not a run
    │   └── MissingExtraError an optional package is not installed
    └── TrainingError         training cannot go on (for example, the loss is not a number)

Every message names the parameter or the file and line, the rule, the value found, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OperaError(Exception):
    """Base class of all errors that OPERA raises on purpose."""

    exit_status = 1


class InputError(OperaError):
    """What the user gave cannot be used."""

    exit_status = 2


class SettingError(InputError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(InputError):
    """A file, line or value of the data breaks a rule."""


class ModelError(InputError):
    """The model cannot be loaded or is not what it claims to be."""


class RunFolderError(InputError):
    """The output folder is not free, or is not a run folder."""


class MissingExtraError(InputError):
    """An optional package is not installed; the message holds the command that installs it."""


class TrainingError(OperaError):
    """Training cannot go on."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name most like ``name``, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{matches[0]}'?" if matches else ""
