"""Texts on their way into a model: as token ids where these say everything, else as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.core.arrays import IntArray
from opera.encoder.token_ids import TokenIds
from opera.encoder.token_store import TokenSource, TokenStore


@dataclass
class RowTexts:
    """Texts by place: rows of a table, default all.

    Attributes:
        source: the table, and how it is tokenised.
        rows: int ``[n]``.
        store: the ids of all rows of the table, where they are known.
    """

    source: TokenSource
    rows: IntArray | None = None
    store: TokenStore | None = None

    def __len__(self) -> int:
        return len(self.source.table) if self.rows is None else len(self.rows)

    def texts(self, part: slice) -> list[str]:
        """Return some of them."""
        return self.source.table.texts(self._numbers(part), self.source.corpus_text)

    def ids(self, part: slice) -> list[TokenIds]:
        """Return the token ids of some of them, prompt in front."""
        if self.store is None:
            return self.source.tokenise(self._numbers(part))
        return self.store.rows(
            np.arange(part.start, part.stop) if self.rows is None else self.rows[part]
        )

    def _numbers(self, part: slice) -> IntArray | slice:
        return part if self.rows is None else self.rows[part]
