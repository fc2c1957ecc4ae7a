"""One of several data sets that are used as one: where its rows stand in the tables of all."""

from __future__ import annotations

from dataclasses import dataclass

from opera.data.texts import TextTable


@dataclass(frozen=True)
class DataPart:
    """One of several data sets.

    Attributes:
        name: its name, which stands before its ids: ``NAME/ID``.
        source: what the user passed.
        fingerprint: as of a data set of its own.
        corpus: its documents, with their own ids.
        queries: its queries, likewise.
        first_document: row of its first document in the corpus of all.
        first_query: row of its first query among all.
        weighted: whether its training pairs came with weights.
    """

    name: str
    source: str
    fingerprint: str
    corpus: TextTable
    queries: TextTable
    first_document: int
    first_query: int
    weighted: bool
