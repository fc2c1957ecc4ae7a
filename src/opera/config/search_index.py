"""How a corpus is searched: exactly, or by an approximate index of FAISS."""

from __future__ import annotations

from typing import Any, Literal, get_args

from opera.core.errors import SettingError, nearest
from opera.core.extras import require
from opera.core.terminal import shown

SearchIndex = Literal["exact", "hnsw", "ivf"]
SEARCH_INDEXES: tuple[SearchIndex, ...] = get_args(SearchIndex)


def checked_index(index: Any) -> SearchIndex:
    """Check the index that a function or a command was given.

    Raises:
        SettingError: if it is none.
        MissingExtraError: if it needs FAISS, which is not installed.
    """
    for known in SEARCH_INDEXES:
        if index == known:
            if known != "exact":
                require("faiss", f"--index {known}")
            return known
    hint = nearest(str(index), SEARCH_INDEXES)
    raise SettingError(
        f"--index: must be one of {', '.join(SEARCH_INDEXES)}, got {shown(index)}{hint}"
    )
