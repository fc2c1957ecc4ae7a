"""One look at a data set: everything that ``opera inspect`` says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import SettingError
from opera.data import Qrels, RetrievalData, TextTable, load_data
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect.advice import Advice, Retention, advise, dynamic_gain, retention_table
from opera.diagnostics.inspect.counts import Spread, grades_of, spread_of
from opera.diagnostics.inspect.overlap import Duplicates, Leak, duplicates, leak
from opera.diagnostics.inspect.quality import (
    Quality,
    Similarities,
    chance_level,
    most_suspicious,
    quality_of,
    random_similarities,
    similarities,
)
from opera.methods.selection import CBS_POOL
from opera.retrieval.encoder import open_encoder
from opera.retrieval.run_model import run_corpus_text
from opera.retrieval.similarity import pair_similarities
from opera.training_set.cbs import CBSRanks, rank_among_random


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
        dynamic_gain: what the theorem promises of dp over ft, if the estimates are right.
        documents: near-duplicates in the corpus.
        queries: near-duplicates among the judged queries of all splits.
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
    dynamic_gain: float
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
    *,
    model: str | Path,
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
    if show < 0:
        raise SettingError(f"show must be 0 or more, got {show}")
    original = load_data(data) if isinstance(data, str | Path) else data
    loaded = original.with_relevant_grade(relevant_grade)
    training = loaded.training_split()
    encoder = open_encoder(model)
    pairs = training.pairs()
    judged = np.unique(np.concatenate([split.query_rows for split in loaded.splits.values()]))
    query_vectors = encoder.encode_queries(loaded, judged)

    def vectors_of(query_rows: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.asarray(query_vectors[np.searchsorted(judged, query_rows)])

    queries, corpus = vectors_of(training.query_rows), encoder.encode_corpus(loaded, run_corpus_text(model))
    similarity = pair_similarities(pairs, queries, corpus)
    random = random_similarities(pairs, queries, corpus, seed)
    consistency = rank_among_random(pairs, queries, corpus, CBS_POOL, seed)
    quality = quality_of(pairs, consistency, similarity, random, corpus)
    retentions = retention_table(pairs, similarity, random, quality)
    leaks = {
        name: leak(loaded, name, queries, vectors_of(split.relevant().query_rows), seed, show, encoder.device)
        for name, split in loaded.splits.items()
        if name != "train" and split.relevant().n_queries
    }
    asked = TextTable(loaded.queries.table.take(judged))
    return Inspection(
        source=loaded.source,
        model=str(model),
        counts=loaded.counts(),
        grades=grades_of(original),
        notes=loaded.notes,
        spread=spread_of(loaded),
        similarities=similarities(similarity, random),
        quality=quality,
        retentions=retentions,
        dynamic_gain=dynamic_gain(similarity, random, quality),
        documents=duplicates(loaded.corpus, corpus, seed, show, encoder.device),
        queries=duplicates(asked, query_vectors, seed, show, encoder.device),
        leaks=leaks,
        suspicious=_suspicious(loaded, training, pairs, similarity, consistency, show),
        advice=advise(quality, retentions),
    )


def _suspicious(
    data: RetrievalData,
    training: Qrels,
    pairs: TrainingPairs,
    similarity: NDArray[np.float32],
    consistency: CBSRanks,
    count: int,
) -> list[SuspiciousPair]:
    worst = most_suspicious(chance_level(consistency), similarity, count)
    query_rows, doc_rows = training.query_rows[pairs.pair_query[worst]], pairs.pair_doc[worst]
    columns: list[list[Any]] = [
        data.queries.ids(query_rows),
        data.corpus.ids(doc_rows),
        data.queries.texts(query_rows, "text"),
        data.corpus.texts(doc_rows),
        similarity[worst].tolist(),
        ((consistency.rank - 1) / np.maximum(consistency.pool, 1))[worst].tolist(),
    ]
    return [SuspiciousPair(*values) for values in zip(*columns, strict=True)]
