"""All exceptions that OPERA raises on purpose.

    OperaError
    ├── InputError            bad input; the command line exits with 2
    │   ├── SettingError      a setting is unknown, out of range or in conflict with another
    │   ├── DataError         a file, line or value of the data breaks a rule
    │   ├── ModelError        the model cannot be loaded or used
    │   ├── RunFolderError    the output folder is not free, or not a run
    │   └── MissingExtraError an optional package is not installed
    ├── TrainingError         training cannot continue (for example, the loss is NaN)
    └── StorageError          a file or folder cannot be written (for example, the disk is full)

Every message starts with the parameter, or the file and line. Rule, value and advice follow.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from opera.core.terminal import escape_newlines


class OperaError(Exception):
    """Base class of all errors that OPERA raises on purpose.

    Args:
        lines: a line for each mistake. Line breaks and control characters within a line come from
            names or values. They are escaped, so no value can forge a line.

    Examples:
        >>> try:
        ...     opera.load_data("nowhere.csv")
        ... except opera.OperaError as error:
        ...     print(error.exit_status)
        2
    """

    exit_status = 1

    def __init__(self, *lines: object) -> None:
        super().__init__(*map(escape_newlines, lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, line by line."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.args)


class InputError(OperaError):
    """The input is invalid.

    Examples:
        >>> issubclass(opera.DataError, opera.InputError)
        True
    """

    exit_status = 2


class SettingError(InputError):
    """A setting is unknown, out of range or in conflict with another.

    Examples:
        >>> try:
        ...     opera.adapt("example:faq", model="minilm", out="new", learning_rat=0.01)
        ... except opera.SettingError as error:
        ...     print("learning_rate" in str(error))
        True
    """


class DataError(InputError):
    """A file, line or value of the data breaks a rule.

    Examples:
        >>> try:
        ...     opera.load_data(pairs=[("a query", "")])
        ... except opera.DataError as error:
        ...     print(error)
        pairs[0]: column 'document' must not be empty; fill it or remove the row
    """


class ModelError(InputError):
    """The model cannot be loaded or used.

    Examples:
        >>> try:
        ...     opera.search("example:faq", "a question", model="no-such-model")
        ... except opera.ModelError as error:
        ...     print("no-such-model" in str(error))
        True
    """


class RunFolderError(InputError):
    """The output folder is not free, or is not a run folder.

    Examples:
        >>> try:
        ...     opera.Run.open("no-run")
        ... except opera.RunFolderError as error:
        ...     print(error)
        no-run: not a run folder: it has no run.json of OPERA
    """


class MissingExtraError(InputError):
    """An optional package is not installed; the message holds the command that installs it."""


class TrainingError(OperaError):
    """Training cannot continue.

    Examples:
        >>> issubclass(opera.TrainingError, opera.InputError)  # the command line exits with 1
        False
    """


class StorageError(OperaError):
    """A file or folder cannot be written: the disk is full, or the place is not writable.

    Examples:
        >>> issubclass(opera.StorageError, opera.InputError)  # the command line exits with 1
        False
    """


def raise_first(kind: type[Exception], *problems: tuple[object, str], subject: str = "") -> None:
    """Raise an error for the first problem that exists.

    Args:
        kind: the class of the error.
        problems: whether each problem exists, and its message.
        subject: the start of every message.
    """
    for exists, message in problems:
        if exists:
            raise kind(f"{subject}{message}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or its cause, means that Python, torch or a library ran out of memory."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, RuntimeError | ImportError | OSError | SystemError) and any(
        text in str(error) for text in OUT_OF_MEMORY
    ):
        return True
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return cause is not None and is_out_of_memory(cause)


OUT_OF_MEMORY = (
    "llocate memory",
    "out of memory",
    "ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
    "failed to map segment",
    "can't start new thread",
    "error return without exception set",
)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` with the nearest known name, or an empty text.

    A known name of five letters or more inside the name also counts: ``epochs`` for
    ``num_train_epochs``.
    """
    names = list(known)
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    matches = matches or [word for word in names if len(word) > 4 and word in name]

    return f"; did you mean '{matches[0]}'?" if matches else ""
