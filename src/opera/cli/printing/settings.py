"""The list of all settings, for any width of the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from opera.core.settings import SettingDoc

WIDEST = 100


def settings_text(groups: Mapping[str, Sequence[SettingDoc]]) -> str:
    """List settings by group: name, default and values on a line; what it does and whence the
    default comes below.
    """
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return "\n".join(_lines(groups, width))


def _lines(groups: Mapping[str, Sequence[SettingDoc]], width: int) -> Iterator[str]:
    yield "--set NAME=VALUE, or NAME: VALUE in a recipe (--config); auto is worked out"
    for group, docs in groups.items():
        yield f"\n{group}"
        for doc in docs:
            yield from _folded(f"{doc.name} = {doc.default}   ({doc.kind})", width, "  ", "      ")
            yield from _folded(f"{doc.help} [{doc.source}]", width, "      ", "      ")


def _folded(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )
