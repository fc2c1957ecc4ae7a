"""Names of data sets: paths, names with a prefix such as ``hf:``, and the tables of a data set."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qsl

from opera.core.arguments import expand_user, flag
from opera.core.errors import SettingError
from opera.core.terminal import shown
from opera.data.columns import parse_columns
from opera.data.text_files import checked_encoding

PREFIX = re.compile("(?!python:)[a-z]{2,}:")
"""The prefix of a source that is not a path: ``irds:``, ``hf:``, or that of an extension."""
SPLIT_NAMES = {
    "train": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
"""OPERA's names of the splits, by their usual names."""
OLD_TABLES = "tables:"
"""The prefix of tables in the records of older versions."""
EXAMPLE = "example:"
"""The prefix of a data set that comes with OPERA."""
MEMORY = "memory:"
"""The prefix of data that were built in memory, not read from files."""


def split_name(path: PurePath, names: Collection[str] = SPLIT_NAMES) -> str | None:
    """Return the name of a split in a path, or ``None``.

    A file or folder whose whole name is a split counts first, such as ``train`` in
    ``train/ab-test.csv``. Else the last word that means a split counts, such as test in
    ``my_test.csv``.
    """
    stem = PurePath(path.name.removesuffix(".gz").removesuffix(".zst")).stem
    parts = [part.lower() for part in (*path.parts[:-1], stem)]
    words = [word for part in parts for word in re.split("[^a-z]+", part)]
    named = [word for word in (*words, *parts) if word in names]
    return named[-1] if named else None


@dataclass(frozen=True)
class TableSource:
    """The tables of one data set.

    Attributes:
        pairs: (name of the split, file) of the pairs. The name is empty if the file's name or a
            column has it.
        documents: the file or folder of documents, or ``None`` if the pairs have the texts.
        queries: the file or folder of queries, or ``None`` if the pairs have the texts.
        columns: (role, column) that the user names.
        encoding: the encoding of text files; ``None``: UTF-8.
        skip_bad_rows: whether to leave out rows that break a rule.
    """

    pairs: tuple[tuple[str, str], ...]
    documents: str | None = None
    queries: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    encoding: str | None = None
    skip_bad_rows: bool = False

    @classmethod
    def of(
        cls,
        pairs: str | Path | Sequence[str | Path | tuple[str, str]] | Mapping[str, str | Path],
        documents: str | Path | None = None,
        queries: str | Path | None = None,
        columns: str | Mapping[str, str | Sequence[str]] | Iterable[str] = (),
        encoding: str | None = None,
        skip_bad_rows: bool = False,
    ) -> Self:
        """Check the user's arguments, and expand paths.

        Args:
            pairs: file or files; ``SPLIT=FILE``, or a mapping from split to file.
            documents: file or folder.
            queries: file or folder.
            columns: ``role=column,...`` as on the command line, or columns by role.
            encoding: the Python name of the encoding of text files.
            skip_bad_rows: whether to leave out rows that break a rule.

        Raises:
            SettingError: for an invalid path, or an unknown split, role or encoding.
        """
        if isinstance(pairs, Mapping):
            pairs = [(name, str(path)) for name, path in pairs.items()]
        files = [
            _split_file(part) for part in ([pairs] if isinstance(pairs, str | Path) else pairs)
        ]
        if not files:
            raise SettingError("--pairs: must name at least one file")
        return cls(
            tuple(files),
            None if documents is None else expand_user(documents, "--documents"),
            None if queries is None else expand_user(queries, "--queries"),
            parse_columns(columns),
            checked_encoding(encoding),
            flag(skip_bad_rows, "skip_bad_rows"),
        )

    @property
    def words(self) -> list[str]:
        """The arguments of a command that reads the tables."""
        files = [f"{split}={path}" if split else path for split, path in self.pairs]
        alone = len(files) == 1 and self.documents is self.queries is None
        words = files if alone else [word for file in files for word in ("--pairs", file)]
        if self.documents is not None:
            words += ["--documents", self.documents]
        if self.queries is not None:
            words += ["--queries", self.queries]
        for role, column in self.columns:
            words += ["--columns", f"{role}={column}"]
        if self.encoding is not None:
            words += ["--encoding", self.encoding]
        return [*words, "--skip-bad-rows"] if self.skip_bad_rows else words

    def __str__(self) -> str:
        """The arguments of a command that reads the tables, quoted for a shell."""
        return shlex.join(self.words)

    def with_paths(self, change: Callable[[str], str]) -> TableSource:
        """Return the same tables with each path changed."""
        return replace(
            self,
            pairs=tuple((split, change(path)) for split, path in self.pairs),
            documents=self.documents and change(self.documents),
            queries=self.queries and change(self.queries),
        )

    @property
    def roles(self) -> list[tuple[str, str]]:
        """The role (``documents``, ``queries``, or ``pairs.`` and the split) and path of files."""
        texts = (("documents", self.documents), ("queries", self.queries))
        pairs = [(f"pairs.{split}", path) for split, path in self.pairs]
        return [(name, path) for name, path in texts if path is not None] + pairs

    @property
    def files(self) -> list[str]:
        """The user's files and folders."""
        return [path for _, path in self.roles]


DataName: TypeAlias = str | TableSource
"""The user's name for a data set: its path, its published name, or its tables."""


def _split_file(value: str | Path | tuple[str, str]) -> tuple[str, str]:
    """Parse ``SPLIT=FILE`` or ``FILE``; the name of a file may have an equals sign."""
    if isinstance(value, tuple):
        split, path = value
        return _split(split) if split else "", expand_user(path, "--pairs")
    split, equals, path = str(value).partition("=")
    if equals and (split in SPLIT_NAMES or (split.isalnum() and not os.path.lexists(value))):
        return _split(split), expand_user(path, "--pairs")
    return "", expand_user(value, "--pairs")


def _split(name: str) -> str:
    if name not in SPLIT_NAMES:
        raise SettingError(f"--pairs: a split must be train, dev or test, got {shown(name)}")
    return name


def name_from_record(name: Any) -> Any:
    """Return a data set's name in the form of this version. Older records have tables as a URL,
    such as ``tables:documents=docs.parquet&pairs.train=p.csv``.
    """
    if not (isinstance(name, str) and name.startswith(OLD_TABLES)):
        return name
    pairs, columns, other = [], [], dict[str, Any]()
    for key, value in parse_qsl(name.removeprefix(OLD_TABLES), keep_blank_values=True):
        kind, _, part = key.partition(".")
        if kind == "pairs":
            pairs.append((part, value))
        elif kind == "columns":
            columns.append((part, value))
        else:
            other[key] = value == "true" if key == "skip_bad_rows" else value
    return {"pairs": pairs, "columns": columns, **other}


def with_paths(name: DataName, change: Callable[[str], str]) -> DataName:
    """Return the name of a data set with each path in it changed."""
    if isinstance(name, TableSource):
        return name.with_paths(lambda path: str(with_paths(path, change)))
    kind = "hf:" if name.startswith("hf:") else ""
    return kind + change(name.removeprefix(kind))


def resolved_name(name: DataName) -> DataName:
    """Return the name of a data set with each existing path resolved. Two names of the same data,
    such as ``data`` and ``./data``, then are equal.
    """
    return with_paths(name, lambda path: os.path.realpath(path) if os.path.lexists(path) else path)


def without_folders(name: DataName) -> DataName:
    """Return the name of a data set without the folders of its paths, for another machine."""
    return with_paths(name, lambda path: Path(path).name if os.path.lexists(path) else path)


def command_words(name: DataName) -> list[str]:
    """Return a data set's name as the words of a command; ``DATA`` stands for data in memory."""
    if isinstance(name, TableSource):
        return name.words
    return ["DATA" if name.startswith(MEMORY) else name]


def source_title(name: DataName) -> str:
    """Return the title of a data set for messages: the files of tables, or the name."""
    return ", ".join(name.files) if isinstance(name, TableSource) else name.removeprefix(MEMORY)


def source_name(name: DataName) -> str | None:
    """Return the short name of tables, or of a source with a prefix; ``None`` for a path.

    The name of ``irds:antique/train`` is ``antique``, without the split. Tables have the name of
    their first file of pairs.
    """
    if isinstance(name, TableSource):
        return PurePath(name.pairs[0][1].rstrip("/")).name.partition(".")[0]
    kind = PREFIX.match(name)
    if kind is None:
        return None
    short = name[kind.end() :].rstrip("/")
    if kind[0] == "irds:":
        parts = short.split("/")
        short = ([part for part in parts if part not in SPLIT_NAMES] or parts)[-1]
    short = short.rpartition("/")[2]
    return name if short in ("", ".", "..") else short
