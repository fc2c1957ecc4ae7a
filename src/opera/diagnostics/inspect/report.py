"""``opera.inspect``: inspect a data set with a model before training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arguments import MOST_SEED, whole_number
from opera.core.paths import expand_user
from opera.data import Qrels, RetrievalData, load_data
from opera.data.combined import one_set
from opera.data.names import source_title
from opera.data.novelty import seen_share
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect.advice import (
    Advice,
    Retention,
    advise,
    dynamic_gain,
    retention_table,
)
from opera.diagnostics.inspect.duplicates import Duplicates, Leak, count_duplicates, find_leak
from opera.diagnostics.inspect.embedding import EmbeddedData, embed
from opera.diagnostics.inspect.positives import PositivesPerQuery, count_grades, positives_per_query
from opera.diagnostics.inspect.quality import (
    Quality,
    Similarities,
    estimate_quality,
    most_suspicious,
    random_similarities,
    relative_rank,
    summarize_similarities,
)
from opera.methods.selection import CBS_POOL
from opera.retrieval.encoder import pair_similarities
from opera.retrieval.prompts import given_prompts
from opera.training_set.cbs import CBSRanks, rank_among_random


@dataclass(frozen=True)
class SuspiciousPair:
    """A labelled pair that looks false.

    Attributes:
        query_id: id of the query.
        doc_id: id of the document labelled as relevant.
        query: text of the query.
        document: text of the document.
        similarity: their cosine similarity.
        closer_random_share: share of random documents that are more similar to the query.
    """

    query_id: str
    doc_id: str
    query: str
    document: str
    similarity: float
    closer_random_share: float


@dataclass(frozen=True)
class Inspection:
    """A data set as a model sees it before any training.

    Attributes:
        source: the data, as the user passed it.
        model: the model, as the user passed it.
        counts: documents, and queries and relevant pairs of each split.
        grades: judgements by grade, for each split.
        notes: what was merged or dropped when the data were read.
        positives_per_query: distribution of positives over the training queries.
        similarities: of labelled and of random pairs.
        quality: estimated scoring quality and noise.
        retentions: what SP would keep and lose at each k.
        dynamic_gain: gain of dp over ft by Theorem 1, if the estimates are right.
        documents: near-duplicates in the corpus.
        queries: near-duplicates among the judged queries of all splits.
        seen: for each split but train, the share of its relevant pairs whose document train names.
        leaks: for each split but train, its overlap with train.
        suspicious: the training pairs that look most false.
        advice: the default method, and what to try if labels are false.
    """

    source: str
    model: str
    counts: dict[str, int]
    grades: dict[str, dict[int, int]]
    notes: tuple[str, ...]
    positives_per_query: PositivesPerQuery
    similarities: Similarities
    quality: Quality
    retentions: list[Retention]
    dynamic_gain: float
    documents: Duplicates
    queries: Duplicates
    seen: dict[str, float]
    leaks: dict[str, Leak]
    suspicious: list[SuspiciousPair]
    advice: Advice

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{count} {name.replace('_', ' ')}" for name, count in self.counts.items()
        )
        return f"Inspection of {source_title(self.source)} with {self.model}: {counts}; advice: {self.advice.method}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists and numbers, for JSON."""
        return asdict(self)


def inspect(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    show: int = 10,
    seed: int = 0,
    relevant_grade: int = 1,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> Inspection:
    """Inspect a data set with a model, without training.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        show: how many suspicious pairs, and how many examples of duplicates, to return.
        seed: seed for drawing the random documents.
        relevant_grade: lowest grade that counts as relevant.
        query_prompt: text before each query, empty for none; the default is the data's, or the model's own.
        document_prompt: text before each document, likewise.

    Returns:
        Counts, grades, positives per query, similarities, estimated noise, what static pruning would keep, duplicates,
        how new other splits' documents are, leaks, suspicious pairs and advice; ``as_dict()`` gives it all for JSON.

    Raises:
        InputError: for invalid input, such as data without a training pair.
    """
    show, seed = whole_number(show, "show", 0), whole_number(seed, "seed", 0, MOST_SEED)
    model, prompts = expand_user(model, "model"), given_prompts(query_prompt, document_prompt)
    original = one_set(load_data(data), "inspect")
    loaded = original.with_relevant_grade(relevant_grade)
    loaded.training_split()  # data without a training pair are refused before the model is loaded
    embedded = embed(loaded, model, prompts)
    estimates = _estimate(embedded, seed)
    return Inspection(
        source=loaded.source,
        model=str(model),
        counts=loaded.counts(),
        grades=count_grades(original),
        notes=loaded.notes,
        positives_per_query=positives_per_query(loaded),
        similarities=summarize_similarities(estimates.similarity, estimates.random),
        quality=estimates.quality,
        retentions=estimates.retentions,
        dynamic_gain=dynamic_gain(estimates.similarity, estimates.random, estimates.quality),
        documents=count_duplicates(loaded.corpus, embedded.documents, seed, show, embedded.device),
        queries=count_duplicates(
            embedded.judged_queries(), embedded.judged, seed, show, embedded.device
        ),
        seen={name: seen_share(loaded, name) for name in _other_splits(loaded)},
        leaks=_find_leaks(embedded, seed, show),
        suspicious=_suspicious_pairs(loaded, estimates, show),
        advice=advise(estimates.quality, estimates.retentions),
    )


@dataclass(frozen=True)
class _Estimates:
    """What the similarities of the training pairs and of random pairs say about the labels.

    Attributes:
        pairs: the training pairs.
        similarity: float32 ``[N]``, of the training pairs.
        random: float32, similarities of random pairs.
        cbs_ranks: rank of each pair's document among random ones.
        quality: estimated scoring quality and noise.
        retentions: what SP would keep and lose at each k.
    """

    pairs: TrainingPairs
    similarity: NDArray[np.float32]
    random: NDArray[np.float32]
    cbs_ranks: CBSRanks
    quality: Quality
    retentions: list[Retention]


def _estimate(embedded: EmbeddedData, seed: int) -> _Estimates:
    training = embedded.data.training_split()
    pairs, pool = training.pairs(), embedded.pool
    query_embeddings, document_embeddings = embedded.pair_queries(training), embedded.pair_documents
    similarity = pair_similarities(pairs, query_embeddings, document_embeddings)
    random = random_similarities(pairs, query_embeddings, document_embeddings, seed, pool)
    cbs_ranks = rank_among_random(
        pairs, query_embeddings, document_embeddings, CBS_POOL, seed, pool
    )
    quality = estimate_quality(pairs, cbs_ranks, similarity, random, document_embeddings, pool)
    return _Estimates(
        pairs,
        similarity,
        random,
        cbs_ranks,
        quality,
        retention_table(pairs, similarity, random, quality),
    )


def _find_leaks(embedded: EmbeddedData, seed: int, max_examples: int) -> dict[str, Leak]:
    """Compare each split but train with train."""
    data = embedded.data
    train = embedded.queries(data.training_split())
    return {
        name: find_leak(
            data, name, train, embedded.queries(relevant), seed, max_examples, embedded.device
        )
        for name, relevant in _other_splits(data).items()
    }


def _other_splits(data: RetrievalData) -> dict[str, Qrels]:
    """The relevant judgements of each split but train that has one."""
    others = {name: qrels.relevant() for name, qrels in data.splits.items() if name != "train"}
    return {name: relevant for name, relevant in others.items() if relevant.n_queries}


def _suspicious_pairs(
    data: RetrievalData, estimates: _Estimates, count: int
) -> list[SuspiciousPair]:
    pairs, cbs_ranks = estimates.pairs, estimates.cbs_ranks
    worst = most_suspicious(relative_rank(cbs_ranks), estimates.similarity, count)
    query_rows, doc_rows = (
        data.training_split().query_rows[pairs.pair_query[worst]],
        pairs.pair_doc[worst],
    )
    columns: list[list[Any]] = [
        data.queries.ids(query_rows),
        data.corpus.ids(doc_rows),
        data.queries.texts(query_rows, "text"),
        data.corpus.texts(doc_rows),
        estimates.similarity[worst].tolist(),
        ((cbs_ranks.rank - 1) / np.maximum(cbs_ranks.pool, 1))[worst].tolist(),
    ]
    return [SuspiciousPair(*values) for values in zip(*columns, strict=True)]
