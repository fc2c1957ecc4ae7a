"""``opera.inspect``: inspect a data set with a model before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from opera.config.arguments import (
    ENCODING,
    ModelArguments,
    ReadingArguments,
    reading_of,
    with_group,
)
from opera.config.automatic import Situation, resolve
from opera.config.negatives import LabelSettings
from opera.config.training import EncodingSettings, TrainSettings
from opera.core.arguments import MOST_SEED, whole_number
from opera.core.arrays import IntArray, distinct_numbers
from opera.core.files import free_path
from opera.core.terminal import command_line, log
from opera.data import Qrels, RetrievalData, load_all, load_data
from opera.data.decisions import with_decisions
from opera.data.loading import named_source
from opera.data.names import DataName, command_words, source_title
from opera.data.pairs import TrainingPairs
from opera.data.placeholders import Placeholder, find_placeholders
from opera.data.retrieval_data import counts_in_words
from opera.data.source_rows import source_rows
from opera.data.splits import known_fraction
from opera.data.texts import CorpusText
from opera.diagnostics.duplicates import Duplicates, Leak, count_duplicates, find_leak
from opera.labels.estimate import noise_interval, noise_rate
from opera.methods.static import CBS_POOL
from opera.retrieval.encoder import Encoder, open_encoder, pair_similarities
from opera.retrieval.kinds import Dense
from opera.retrieval.lengths import TextLengths, text_lengths
from opera.retrieval.locate import (
    MINILM,
    Model,
    checked_model,
    is_loaded,
    model_title,
    run_corpus_text,
    with_grade,
)
from opera.retrieval.models import model_kind
from opera.retrieval.passages import DocumentVectors
from opera.retrieval.prompts import Role, with_data_prompt
from opera.training.documents import DocumentPool
from opera.training.negatives import by_draws
from opera.training.prepare_data import automatic_negatives
from opera.training.pretrained_scores import CBSRanks, rank_among_random

MIN_POOL = 20
"""The noise estimate needs so many random documents in a ranking."""


@dataclass(frozen=True)
class Quality:
    """Quality of labels and scores, estimated from ranks of labelled among random documents.

    Attributes:
        noise: estimated fraction of pairs whose document scores no better than a random document,
            from their ranks as in training; ``None`` if the ranking has too few documents.
        low: lower end of its 95% interval.
        high: upper end.
    """

    noise: float | None
    low: float
    high: float


def relative_rank(cbs_ranks: CBSRanks) -> NDArray[np.float64]:
    """The rank of each pair, scaled to (0, 1) as at its first visit: float64 ``[N]``.

    It is uniform if the document of the pair is random.
    """
    return (cbs_ranks.rank - 0.5) / (cbs_ranks.pool + 1.0)


def estimate_quality(cbs_ranks: CBSRanks, query: IntArray) -> Quality:
    """Estimate the noise from the ranks of the pairs' documents, and their queries, int ``[N]``."""
    p, enough = relative_rank(cbs_ranks), cbs_ranks.smallest_pool >= MIN_POOL
    noise = noise_rate(p)
    return Quality(noise if enough else None, *noise_interval(noise, [(1.0, p, query)]))


@dataclass(frozen=True)
class SuspiciousPair:
    """A labelled pair that looks wrong.

    Attributes:
        query_id: id of the query.
        doc_id: id of the document labelled as relevant.
        query: text of the query.
        document: text of the document.
        similarity: the cosine similarity of query and document.
        closer_random_share: fraction of random documents that are more similar to the query.
        file: the name of the user's table with the pair; ``None`` if the data are not tables.
        line: its line or row there.
    """

    query_id: str
    doc_id: str
    query: str
    document: str
    similarity: float
    closer_random_share: float
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Inspection:
    """A data set before any training, as a model sees it.

    Attributes:
        source: the user's data.
        command: the command that trains on the data, with the options of the inspection.
        model: the user's model; ``None`` without one.
        counts: the numbers of documents, and of queries and relevant pairs by split.
        grades: the numbers of judgements by split and grade.
        notes: sentences about merged and dropped data.
        documents: near-duplicates in the corpus.
        queries: near-duplicates among the judged queries of all splits.
        seen: by split except train, the fraction of relevant pairs whose document is also relevant
            in train.
        leaks: by split except train, the overlap with train.
        unlabelled: the number of documents without a training pair.
        skipped: the table rows that were left out, with file, line, reason and text.
        placeholders: repeated short texts, such as ``n/a``.
        quality: estimated scoring quality and noise; ``None`` without a model.
        draws: how often a training with all defaults would draw each document as a random negative
            from the whole corpus; ``None`` without a model.
        negatives: the kind of negatives of a training with all defaults; ``None`` without a model.
        lengths: how long queries and documents are, and how much of them a training reads; empty
            without a model.
        suspicious: the training pairs that look most wrong; empty without a model.
    """

    source: DataName
    command: str
    model: str | None
    counts: dict[str, int]
    grades: dict[str, dict[int, int]]
    notes: tuple[str, ...]
    documents: Duplicates
    queries: Duplicates
    seen: dict[str, float]
    leaks: dict[str, Leak]
    unlabelled: int
    skipped: Sequence[Mapping[str, Any]]
    placeholders: Sequence[Placeholder]
    quality: Quality | None = None
    draws: float | None = None
    negatives: str | None = None
    lengths: Sequence[TextLengths] = ()
    suspicious: Sequence[SuspiciousPair] = ()

    def __repr__(self) -> str:
        return f"Inspection of {self.title}: {self.size}"

    @property
    def title(self) -> str:
        """The data, and the model if there is one."""
        data = source_title(self.source)
        return data if self.model is None else f"{data} with {self.model}"

    @property
    def size(self) -> str:
        """The counts in words: ``1 document, 2 train queries``."""
        return counts_in_words(self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists and numbers, for JSON."""
        return asdict(self)


@with_group(ModelArguments)
def inspect(
    data: Any,
    *,
    model: Model | None = None,
    show: int = 8,
    seed: int = 0,
    relevant_grade: int | None = None,
    decisions: str | Path | Sequence[str | Path] | None = None,
    **arguments: Unpack[ModelArguments],
) -> Inspection:
    """Inspect a data set before training, with or without a model.

    Args:
        data: anything :func:`opera.load_data` reads, such as a DataFrame, or loaded data.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer, an OPERA run,
            or ``minilm``. Suspicious pairs, noise, near-duplicates and lengths need a model.
        show: number of suspicious pairs, skipped rows and examples of duplicates to return.
        seed: seed of the random documents.
        relevant_grade: lowest grade that counts as relevant; the default is the run's if ``model``
            is a run on these data, else 1.
        decisions: tables of decisions about labels, as for :func:`opera.adapt`.
        arguments: how to read tables, and how the model reads texts (``ModelArguments``).

    Returns:
        Counts, grades, duplicates, known documents of other splits, leaks and documents without a
        training pair; with a model also noise, lengths and suspicious pairs. ``as_dict()`` returns
        all of it for JSON.

    Raises:
        InputError: for invalid input, such as data without a training pair.

    Examples:
        >>> opera.inspect("example:faq").counts["train_pairs"]
        300
    """
    show, seed = whole_number(show, "show", 0), whole_number(seed, "seed", 0, MOST_SEED)
    settings = EncodingSettings.chosen(**arguments)
    model = None if model is None else checked_model(model)
    original, loaded = _load(data, model, decisions, relevant_grade, arguments)
    embeddings = None
    if model is not None:
        settings = with_data_prompt(settings, loaded, model)
        embeddings = Embeddings.of(loaded, model, settings)
    pool = DocumentPool.of(loaded, "title_text" if model is None else run_corpus_text(model))
    return Inspection(
        source=loaded.source,
        command=training_command(loaded.source, model, relevant_grade, decisions, arguments),
        model=None if model is None else model_title(model),
        counts=loaded.counts(),
        grades=count_grades(original),
        notes=loaded.notes,
        unlabelled=pool.others(loaded.training_split().pairs().pair_doc),
        skipped=[] if loaded.skipped is None else loaded.skipped.slice(0, show).to_pylist(),
        placeholders=find_placeholders(loaded),
        **_duplicates(loaded, embeddings, seed, show),
        **(
            {}
            if embeddings is None
            else _with_model(loaded, embeddings, pool, arguments, seed, show)
        ),
    )


@dataclass(frozen=True)
class Embeddings:
    """The embeddings of a data set.

    Attributes:
        encoder: the model.
        corpus_text: fields of a document that it reads.
        documents: of the corpus.
        query_rows: the judged queries of all splits, ascending.
        queries: of these queries, float32 ``[queries, dimension]``.
    """

    encoder: Encoder
    corpus_text: CorpusText
    documents: DocumentVectors
    query_rows: IntArray
    queries: NDArray[np.float32]

    @classmethod
    def of(cls, data: RetrievalData, model: Model, settings: Mapping[str, Any]) -> Embeddings:
        """Encode the documents and the judged queries."""
        encoder = open_encoder(model, **settings, as_in_training=True)
        corpus_text, judged = run_corpus_text(model), judged_queries(data)
        documents = encoder.encode_corpus(data, corpus_text)
        queries = encoder.encode_queries(data, judged)[:]
        return cls(encoder, corpus_text, documents, judged, queries)

    def of_queries(self, qrels: Qrels) -> NDArray[np.float32]:
        """Return the embeddings of the queries of a split."""
        return self.queries[np.searchsorted(self.query_rows, qrels.query_rows)]


def judged_queries(data: RetrievalData) -> IntArray:
    """Return the rows of the queries of all splits, ascending."""
    return distinct_numbers(np.concatenate([qrels.query_rows for qrels in data.splits.values()]))


def _duplicates(
    data: RetrievalData, embeddings: Embeddings | None, seed: int, show: int
) -> dict[str, Any]:
    """Find duplicates, leaks and known documents; without vectors, only copies of texts."""
    if embeddings is not None and embeddings.encoder.kind is not Dense:
        log.info("note: near-duplicates need a dense model; only copies are counted")
        embeddings = None
    documents, queries, device = None, None, "cpu"
    if embeddings is not None:
        documents, queries = embeddings.documents.first_rows(), embeddings.queries
        device = embeddings.encoder.device
    train = data.training_split()
    judged = data.queries.select(judged_queries(data))
    held_out = {
        name: relevant
        for name, qrels in data.splits.items()
        if name != "train" and (relevant := qrels.relevant()).n_queries
    }

    def leak(name: str, split: Qrels) -> Leak:
        of_train, of_split = None, None
        if embeddings is not None:
            of_train, of_split = embeddings.of_queries(train), embeddings.of_queries(split)
        return find_leak(data, name, of_train, of_split, seed, show, device)

    return {
        "documents": count_duplicates(data.corpus, documents, seed, show, device),
        "queries": count_duplicates(judged, queries, seed, show, device),
        "seen": {name: known_fraction(data, name) for name in held_out},
        "leaks": {name: leak(name, split) for name, split in held_out.items()},
    }


def _with_model(
    data: RetrievalData,
    embeddings: Embeddings,
    pool: DocumentPool,
    arguments: ModelArguments,
    seed: int,
    show: int,
) -> dict[str, Any]:
    """Estimate the noise, find the pairs that look most wrong, and count tokens."""
    train = data.training_split()
    pairs, queries, documents = train.pairs(), embeddings.of_queries(train), embeddings.documents
    ranks = rank_among_random(pairs, queries, documents, CBS_POOL, seed, pool)
    return {
        "quality": estimate_quality(ranks, pairs.pair_query),
        "suspicious": _suspicious_pairs(data, pairs, queries, documents, ranks, show),
        "lengths": _lengths(embeddings, data, arguments, seed),
        **_negatives_in_training(data, pairs.n_queries, embeddings.encoder),
    }


def training_command(
    source: DataName,
    model: Model | None,
    relevant_grade: int | None,
    decisions: Any,
    arguments: ModelArguments,
) -> str:
    """Return the command that trains on inspected data. ``MODEL`` stands for a loaded model."""
    words = command_words(source)
    if isinstance(source, str) and decisions:  # the options apply to the decisions alone
        encoding = arguments.get("encoding")
        words += [] if encoding is None else ["--encoding", encoding]
        words += ["--skip-bad-rows"] if arguments.get("skip_bad_rows") else []
    for path in LabelSettings.parse({"decisions": decisions}).decisions or ():
        words += ["--decisions", path]
    words += ["--model", "MODEL" if is_loaded(model) else str(model or MINILM)]
    settings = {name: arguments.get(name) for name in ENCODING} | {"relevant_grade": relevant_grade}
    for name, value in settings.items():
        words += [] if value is None else ["--set", f"{name}={value}"]
    return command_line("train", *words, "--out", free_path(Path("run")))


def _load(
    data: Any,
    model: Model | None,
    decisions: Any,
    relevant_grade: int | None,
    arguments: ReadingArguments,
) -> tuple[RetrievalData, RetrievalData]:
    """Load the data as they are, and with decisions and the relevant grade."""
    decided = LabelSettings.parse({"decisions": decisions}).decisions
    source = named_source(data, **reading_of(arguments), strict=not decided)
    original = load_data(source)
    graded = load_all(
        [with_grade(original, model, relevant_grade)],
        arguments.get("encoding"),
        arguments.get("skip_bad_rows", False),
    )
    loaded = with_decisions(graded, decided or ()).joined
    loaded.training_split()  # raises an error before the model is loaded
    return original, loaded


def _lengths(
    embeddings: Embeddings, data: RetrievalData, arguments: ModelArguments, seed: int
) -> list[TextLengths]:
    """Count the tokens of queries and documents, against the limits of a training."""
    defaults = EncodingSettings()
    limits: dict[Role, int | None] = {
        "query": arguments.get("max_query_length") or defaults.max_query_length,
        "document": arguments.get("max_passage_length") or defaults.max_passage_length,
    }
    lengths = (
        text_lengths(
            embeddings.encoder,
            data,
            role,
            limit,
            embeddings.corpus_text if role == "document" else "text",
            seed,
        )
        for role, limit in limits.items()
    )
    return [of_role for of_role in lengths if of_role is not None]


def _negatives_in_training(data: RetrievalData, queries: int, encoder: Encoder) -> dict[str, Any]:
    """Return which negatives a training with all defaults has, and how often it draws each document
    as a random negative.
    """
    situation = Situation(queries, model_kind(encoder.model), encoder.device)
    defaults, size = resolve(TrainSettings(), situation), len(data.corpus)
    return {
        "negatives": by_draws(automatic_negatives(data, defaults), defaults, size, processes=1),
        "draws": defaults.draws_per_document(size, processes=1),
    }


def _suspicious_pairs(
    data: RetrievalData,
    pairs: TrainingPairs,
    queries: NDArray[np.float32],
    documents: DocumentVectors,
    ranks: CBSRanks,
    count: int,
) -> list[SuspiciousPair]:
    similarity = pair_similarities(pairs, queries, documents)
    worst = np.lexsort((similarity, -relative_rank(ranks)))[:count]
    query_rows = data.training_split().query_rows[pairs.pair_query[worst]]
    doc_rows = pairs.pair_doc[worst]
    places = source_rows(data, data.source, (query_rows, doc_rows))
    columns: list[list[Any]] = [
        data.queries.ids(query_rows),
        data.corpus.ids(doc_rows),
        data.queries.texts(query_rows, "text"),
        data.corpus.texts(doc_rows),
        similarity[worst].tolist(),
        ((ranks.rank - 1) / np.maximum(ranks.pool, 1))[worst].tolist(),
        [None if row is None else row.file for row in places],
        [None if row is None else row.line for row in places],
    ]
    return [SuspiciousPair(*values) for values in zip(*columns, strict=True)]


def count_grades(data: RetrievalData) -> dict[str, dict[int, int]]:
    """Count the judgements of each split by grade."""
    counts = {name: Counter(qrels.grades.tolist()) for name, qrels in data.splits.items()}
    return {name: dict(sorted(by_grade.items())) for name, by_grade in counts.items()}
