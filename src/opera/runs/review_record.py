"""The typed contents of ``review.json``."""

from __future__ import annotations

from opera.runs.reading import Part


class ReviewedDocument(Part):
    """A document in a review; ``labelled`` says whether it is relevant, if that is shown."""

    doc_id: str
    document: str
    labelled: bool = False


class ReviewedPair(Part):
    """A query and a document to decide on; ``stratum`` is the group that it was sampled from."""

    query_id: str
    query: str
    doc_id: str
    document: str
    others: list[ReviewedDocument]
    why: str
    stratum: str | None = None
    first_rank: float


class ReviewedSplit(Part):
    """The items of a split: labelled ``pairs`` in order, ``missing`` labels, the size of each
    stratum, the number of ``confirmed`` pairs, and OPERA's ``estimate``."""

    strata: dict[str, int]
    confirmed: int
    estimate: dict[str, float] | None
    pairs: list[ReviewedPair]
    missing: list[ReviewedPair]


class ChangedQuery(Part):
    """A test query, with its nDCG@10 and its best documents for the base and the final model."""

    query_id: str
    query: str
    base: float
    final: float
    base_documents: list[ReviewedDocument]
    final_documents: list[ReviewedDocument]


class ChangedQueries(Part):
    """The test queries that lost and gained most, and how many lost, gained and stayed."""

    losses: list[ChangedQuery]
    gains: list[ChangedQuery]
    lost: int
    gained: int
    same: int


class ReviewRecord(Part):
    """``review.json``: the items of :func:`opera.review`."""

    train: ReviewedSplit
    test: ReviewedSplit
    changed: ChangedQueries
