"""One look at a data set: everything that ``opera inspect`` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opera.api import open_encoder, text_choice
from opera.data import RetrievalData, load_data
from opera.inspection.advice import Advice, Retention, advise, retention_table
from opera.inspection.counts import Spread, grades_of, spread_of
from opera.inspection.overlap import Duplicates, Leak, duplicates, leak
from opera.inspection.quality import (
    Quality,
    Similarities,
    chance_level,
    most_suspicious,
    quality_of,
    similarities,
)
from opera.score import pair_consistency, pair_similarities

CBS_POOL = 10_000


@dataclass(frozen=True)
class SuspiciousPair:
    """A labelled pair that looks false.

    Attributes:
        query_id: the query.
        doc_id: the document labelled as relevant.
        query: its text.
        document: its text.
        similarity: their cosine.
        beaten_by: share of random documents that are more similar to the query.
    """

    query_id: str
    doc_id: str
    query: str
    document: str
    similarity: float
    beaten_by: float


@dataclass(frozen=True)
class Inspection:
    """What a data set is like under a model, before any training.

    Attributes:
        source: the data, as the user called it.
        model: the model, likewise.
        counts: documents, queries and relevant pairs of each split.
        grades: judgements by grade, for each split.
        notes: what reading the data merged or dropped.
        spread: positives per query.
        similarities: of labelled and random pairs.
        quality: scoring quality and estimated noise.
        retentions: what SP would keep and lose at each k.
        documents: near-duplicates in the corpus.
        queries: near-duplicates among the queries of all splits.
        leaks: for each split but train, what of it stands in train.
        suspicious: the pairs that look most false.
        advice: the method that the theory would choose.
    """

    source: str
    model: str
    counts: dict[str, int]
    grades: dict[str, dict[int, int]]
    notes: tuple[str, ...]
    spread: Spread
    similarities: Similarities
    quality: Quality
    retentions: list[Retention]
    documents: Duplicates
    queries: Duplicates
    leaks: dict[str, Leak]
    suspicious: list[SuspiciousPair]
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers, for JSON."""
        return asdict(self)


def inspect(
    data: str | Path | RetrievalData,
    model: str | Path,
    *,
    show: int = 10,
    seed: int = 0,
    relevant_grade: int = 1,
) -> Inspection:
    """Look at a data set under a model, without training.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        show: how many suspicious pairs and how many examples of duplicates to give.
        seed: of the random documents to compare with.
        relevant_grade: lowest score in the qrels that counts as relevant.

    Raises:
        InputError: for anything that cannot be used, such as data without a training pair.
    """
    loaded = load_data(data) if isinstance(data, str | Path) else data
    loaded = loaded.with_relevant_grade(relevant_grade)
    training = loaded.training_split()
    encoder = open_encoder(model)
    pairs = training.pairs()
    queries = encoder.queries(loaded, training.query_rows)
    corpus = encoder.corpus(loaded, text_choice(model))
    similarity = pair_similarities(pairs, queries, corpus)
    consistency = pair_consistency(pairs, queries, corpus, CBS_POOL, seed)
    quality = quality_of(pairs, consistency, corpus, np.mean(corpus, axis=0, dtype=np.float64))
    retentions = retention_table(pairs, similarity, quality)
    place = chance_level(consistency)
    worst = most_suspicious(place, similarity, show)
    query_rows, doc_rows = training.query_rows[pairs.pair_query[worst]], pairs.pair_doc[worst]
    parts: Mapping[str, list[Any]] = {
        "query_id": loaded.queries.ids(query_rows),
        "doc_id": loaded.corpus.ids(doc_rows),
        "query": loaded.queries.texts(query_rows, "text"),
        "document": loaded.corpus.texts(doc_rows),
        "similarity": similarity[worst].tolist(),
        "beaten_by": ((consistency.rank - 1) / np.maximum(consistency.pool, 1))[worst].tolist(),
    }
    all_queries = encoder.queries(loaded, np.arange(len(loaded.queries), dtype=np.int32))
    leaks = {
        name: leak(loaded, name, (queries, all_queries[split.relevant().query_rows]), show)
        for name, split in loaded.splits.items()
        if name != "train" and split.relevant().n_queries
    }
    return Inspection(
        source=loaded.source,
        model=str(model),
        counts=loaded.counts(),
        grades=grades_of(loaded),
        notes=loaded.notes,
        spread=spread_of(loaded),
        similarities=similarities(pairs, similarity, queries, corpus, seed),
        quality=quality,
        retentions=retentions,
        documents=duplicates(loaded.corpus, corpus, seed, show),
        queries=duplicates(loaded.queries, all_queries, seed, show),
        leaks=leaks,
        suspicious=[SuspiciousPair(*values) for values in zip(*parts.values(), strict=True)],
        advice=advise(quality, retentions),
    )
