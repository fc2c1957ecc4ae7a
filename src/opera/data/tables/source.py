"""``TableSource``: which tables are a data set, as a value and as the string that a run records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from opera.core.errors import SettingError
from opera.core.paths import expand_user
from opera.core.terminal import shown
from opera.data.names import SPLIT_NAMES, TABLES
from opera.data.tables.columns import checked_columns, columns_by_role

_SPLIT = "|".join(SPLIT_NAMES)


@dataclass(frozen=True)
class TableSource:
    """Tables that are one data set.

    Attributes:
        pairs: (split, file) of the pairs; the split is empty where the file or its columns say it.
        documents: the file or folder of documents, or ``None``: the pairs hold the texts.
        queries: the file or folder of queries, or ``None``: the pairs hold the texts.
        columns: (role, column) where names are not recognised, or others are meant.
    """

    pairs: tuple[tuple[str, str], ...]
    documents: str | None = None
    queries: str | None = None
    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        pairs: str | Path | Sequence[str | Path] | Mapping[str, str | Path],
        documents: str | Path | None = None,
        queries: str | Path | None = None,
        columns: str | Mapping[str, str | Sequence[str]] | Iterable[str] = (),
    ) -> TableSource:
        """Check and expand what a user gives.

        Args:
            pairs: file or files; ``SPLIT=FILE``, or a mapping from split to file.
            documents: file or folder.
            queries: file or folder.
            columns: ``role=column,...`` as on the command line, or columns by role.

        Raises:
            SettingError: for paths that cannot be, a split of another name, or an unknown role.
        """
        if isinstance(pairs, Mapping):
            files = [(_split(name), expand_user(path, "--pairs")) for name, path in pairs.items()]
        else:
            files = [
                _split_file(part) for part in ([pairs] if isinstance(pairs, str | Path) else pairs)
            ]
        if not files:
            raise SettingError("--pairs: must name at least one file")
        chosen = columns_by_role(columns)
        return cls(
            tuple(files),
            None if documents is None else expand_user(documents, "--documents"),
            None if queries is None else expand_user(queries, "--queries"),
            chosen,
        )

    @classmethod
    def parse(cls, text: str) -> TableSource:
        """Read what :meth:`__str__` wrote.

        Raises:
            SettingError: for something else.
        """
        pairs, files, columns = [], {}, []
        for key, value in parse_qsl(text.removeprefix(TABLES), keep_blank_values=True):
            kind, _, own = key.partition(".")
            if kind == "pairs":
                pairs.append((own and _split(own), expand_user(value, "--pairs")))
            elif key in ("documents", "queries") and key not in files:
                files[key] = expand_user(value, f"--{key}")
            elif kind == "columns":
                columns.append((own, value))
            else:
                raise SettingError(
                    f"{TABLES} must hold pairs, documents, queries and columns, got {shown(key)}"
                )
        if not pairs:
            raise SettingError(
                f"{TABLES} must name pairs, as in {TABLES}pairs=clicks.csv, got {shown(text)}"
            )
        return cls(
            tuple(pairs), files.get("documents"), files.get("queries"), checked_columns(columns)
        )

    def __str__(self) -> str:
        """One line that :meth:`parse` reads: ``tables:documents=docs.parquet&pairs=clicks.csv&columns.query=q``."""
        parts = [
            (name, path)
            for name in ("documents", "queries")
            if (path := getattr(self, name)) is not None
        ]
        parts += [(f"pairs.{split}" if split else "pairs", path) for split, path in self.pairs]
        parts += [(f"columns.{role}", column) for role, column in self.columns]
        return TABLES + urlencode(parts, quote_via=quote, safe="/:~,=")

    def without_folders(self) -> TableSource:
        """Return the same tables by the last parts of their paths, for readers elsewhere."""
        documents, queries = (
            None if path is None else _last_part(path) for path in (self.documents, self.queries)
        )
        pairs = tuple((split, _last_part(path)) for split, path in self.pairs)
        return replace(self, pairs=pairs, documents=documents, queries=queries)

    def options(self) -> list[str]:
        """Return the words of a command line that name these tables, without the folders that they are in."""
        tables = self.without_folders()
        texts = [("--documents", tables.documents), ("--queries", tables.queries)]
        words = [word for option, path in texts if path is not None for word in (option, path)]
        for split, path in tables.pairs:
            words += ["--pairs", f"{split}={path}" if split else path]
        if self.columns:
            words += ["--columns", ",".join(f"{role}={column}" for role, column in self.columns)]
        return words

    @property
    def hub_name(self) -> str | None:
        """What stands behind ``hf:``, where the pairs are a data set of the hub; else ``None``.

        Raises:
            SettingError: for a data set of the hub beside other tables.
        """
        names = [path for path in self.files if path.startswith("hf:")]
        if names and len(self.files) > 1:
            raise SettingError(
                f"{names[0]}: a data set of the hub cannot be read beside other tables; give it alone"
            )
        return names[0].removeprefix("hf:") if names else None

    @property
    def roles(self) -> list[tuple[str, str]]:
        """What each file or folder is, ``pairs.`` with its split, ``documents`` or ``queries``, and its path."""
        texts = [
            (name, path)
            for name in ("documents", "queries")
            if (path := getattr(self, name)) is not None
        ]
        return texts + [(f"pairs.{split}", path) for split, path in self.pairs]

    @property
    def files(self) -> list[str]:
        """The files and folders, as given."""
        return [path for _, path in self.roles]


def _split_file(value: str | Path) -> tuple[str, str]:
    """Read ``SPLIT=FILE`` or ``FILE``; a word before the sign is a split, unless a file has the whole name."""
    split, equals, path = str(value).partition("=")
    if equals and (split in SPLIT_NAMES or (split.isalnum() and not os.path.lexists(value))):
        return _split(split), expand_user(path, "--pairs")
    return "", expand_user(value, "--pairs")


def _split(name: str) -> str:
    if name not in SPLIT_NAMES:
        raise SettingError(f"--pairs: a split must be train, dev or test, got {shown(name)}")
    return SPLIT_NAMES[name]


def _last_part(path: str) -> str:
    return path if path.startswith("hf:") else Path(path).name
