"""Build the training set of a run: pairs, negatives, base scores; and look up their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from accelerate import PartialState
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch.utils.data import Dataset

from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.arrays import BoolArray, FloatArray, IntArray, is_among
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.data.copies import text_keys
from opera.data.pairs import DecidedPairs, TrainingPairs
from opera.data.qrels import DocumentLists, Qrels
from opera.encoder import TokenSource
from opera.methods import Method, PairScores
from opera.retrieval.kinds.dense import reads_vectors
from opera.retrieval.passages import DocumentVectors, Passages
from opera.retrieval.prompts import ROLES, Role, prompt_for
from opera.retrieval.vectors import Vectors
from opera.training.documents import DocumentPool, KnownPositives
from opera.training.negatives import (
    ListedNegatives,
    Miner,
    NegativeInputs,
    Negatives,
    build_negatives,
    by_draws,
)
from opera.training.prepare import Prepared
from opera.training.pretrained_scores import pretrained_scores
from opera.training.sampler import Batch, Quotas


@dataclass(frozen=True)
class SetTrainingPairs:
    """One data set of a run. Rows and query indices count from 0 within this set.

    Attributes:
        data: its texts and negatives.
        train: its training pairs, with weights.
        pairs: the same pairs, with query indices.
        decided: the decisions about these pairs.
        first_query_index: the query index of its first training query in the run.
        first_doc_row: the row of its first document in the joined corpus.
    """

    data: RetrievalData
    train: Qrels
    pairs: TrainingPairs
    decided: DecidedPairs
    first_query_index: int
    first_doc_row: int

    @property
    def confirmed(self) -> BoolArray:
        """Whether a decision calls each pair correct: bool ``[N of the set]``."""
        return is_among(text_keys(self.data, self.train), self.decided.confirmed)

    def known_of_set(self, known: KnownPositives) -> KnownPositives:
        """Return the known positives of this set, with its query indices and document rows."""
        query_indices = slice(self.first_query_index, self.first_query_index + self.pairs.n_queries)
        doc_rows = slice(self.first_doc_row, self.first_doc_row + len(self.data.corpus))
        return replace(
            known,
            query_group=known.query_group[query_indices],
            document_group=known.document_group[doc_rows],
        )


@dataclass(frozen=True)
class NegativeSources:
    """The source of explicit negatives, and the known positives to exclude.

    Attributes:
        kind: the kind of negatives.
        sets: the negatives of each set, with the set's query indices and document rows.
        known: the known positives by their texts: training pairs, held-out pairs, and documents
            that equal the query. With ``prune_before_mining``, it lacks pruned pairs.
        lists: the lists of negatives per query index of all sets; ``None`` without lists.
    """

    kind: str
    sets: tuple[Negatives, ...]
    known: KnownPositives
    lists: DocumentLists | None


@dataclass(frozen=True)
class BestPassages:
    """Chooses the passage of a document that matches a query best under the base model.

    Attributes:
        passages: the passages of the corpus.
        queries: the base model's embeddings of the training queries, by query index.
        documents: its embeddings of the passages; ``None`` to take first passages, without any
            encoding.
    """

    passages: Passages
    queries: Vectors | None
    documents: DocumentVectors | None

    @classmethod
    def of(
        cls, prepared: Prepared, train: Qrels, data: RetrievalData, first_passages: bool
    ) -> Self | None:
        """Encode queries and passages; ``None`` if the training reads whole documents."""
        encoder, settings = prepared.model.encoder, prepared.settings
        if settings.passages is None or (passages := encoder.passages(data)) is None:
            return None
        if first_passages:
            return cls(passages, None, None)
        queries = encoder.encode_queries(data, train.query_rows)
        return cls(passages, queries, encoder.encode_corpus(data, settings.corpus_text))

    def rows(self, queries: IntArray, doc_rows: IntArray) -> NDArray[np.int64]:
        """Return passages ``[B, c]`` of documents ``[B, c]`` for query indices ``[B]``."""
        if self.queries is None or self.documents is None:
            return self.passages.starts[doc_rows]
        vectors = self.queries[np.repeat(queries, doc_rows.shape[1])]
        best, _ = self.documents.best_rows(vectors, doc_rows.ravel())
        return best.reshape(doc_rows.shape)


@dataclass(frozen=True)
class TrainingSet:
    """The training set of a run: n queries with N positive pairs.

    Attributes:
        mixture: the data sets, with the splits of this training.
        sets: the training pairs of each data set. They follow each other.
        quotas: the mix of several data sets; ``None`` for a single data set.
        train: the training judgements, with grades and weights ``[N]``.
        pairs: the training pairs.
        scores: the base model's scores of each set's pairs; empty if the method needs none.
            Training overwrites them.
        similarity: float32 ``[N]``, a copy of the base model's similarities.
        negatives: the negatives.
        passages: chooses the passage of each document in a batch; ``None`` if documents stay whole.
    """

    mixture: Mixture
    sets: tuple[SetTrainingPairs, ...]
    quotas: Quotas | None
    train: Qrels
    pairs: TrainingPairs
    scores: tuple[PairScores, ...]
    similarity: NDArray[np.float32] | None
    negatives: NegativeSources
    passages: BestPassages | None = None

    @property
    def data(self) -> RetrievalData:
        """The joined data sets, for the texts."""
        return self.mixture.joined

    @property
    def first_pairs(self) -> NDArray[np.int64]:
        """The first pair of each set, then N: int64 ``[sets + 1]``."""
        return np.cumsum([0, *(data_set.pairs.n_pairs for data_set in self.sets)])

    @property
    def copies(self) -> NDArray[np.int64] | None:
        """One number per pair, equal for pairs with the same texts, int64 ``[N]``; ``None`` if no
        pair has a copy. A single data set has none, because it merges them.
        """
        if self.mixture.is_single:
            return None
        keys, pair_numbers = np.unique(text_keys(self.data, self.train), return_inverse=True)
        return None if len(keys) == len(pair_numbers) else np.asarray(pair_numbers)

    @property
    def loss_weights(self) -> NDArray[np.float32] | None:
        """The factor of each pair's loss with ``pair_weights=loss``: float32 ``[N]``."""
        if self.train.weights is None:
            return None
        return np.concatenate(
            [loss_weights(data_set.train.weights_or_ones()) for data_set in self.sets]
        )

    @property
    def shared_arrays(self) -> list[Any]:
        """The arrays that must be equal in all processes."""
        arrays: list[Any] = [self.pairs.pair_query, self.pairs.pair_doc]
        for scores in self.scores:
            arrays += [scores.similarity, scores.loss]
        return arrays if self.negatives.lists is None else [*arrays, self.negatives.lists.doc_rows]

    def methods(self, recipe: Recipe, processes: int) -> list[Method[Any]]:
        """Create the method of each set; automatic settings must be resolved.

        Args:
            recipe: the method and its settings.
            processes: the number of processes that train together.
        """
        run_plan = recipe.plan(processes)
        plans = [run_plan] if self.quotas is None else self.quotas.plans(run_plan)
        starts = self.scores or [None] * len(self.sets)
        return [
            recipe.method_class(data_set.pairs, plan, recipe.method_settings, start)
            for data_set, plan, start in zip(self.sets, plans, starts, strict=True)
        ]


def build_training_set(
    prepared: Prepared, mixture: Mixture | None = None, first_passages: bool = False
) -> TrainingSet:
    """Build the training set. Mining and scores encode queries and corpus if needed.

    Scores and negatives of a data set use only the documents of this set. Scores come before
    negatives, because with ``prune_before_mining`` the method prunes pairs first.

    Args:
        prepared: the run.
        mixture: the version of the data with the train split; ``None``: ``with_splits``.
        first_passages: whether to train on first instead of best passages, to measure the time.
    """
    mixture = prepared.data.with_splits if mixture is None else mixture
    sets, train = _sets_of(mixture), mixture.joined.training_split()
    pairs, quotas = train.pairs(), None
    if not mixture.is_single:
        quotas = Quotas.of(
            [data_set.data.name for data_set in sets],
            [data_set.pairs.n_pairs for data_set in sets],
            prepared.settings,
        )
    known = KnownPositives.of(mixture.joined, train.query_rows, pairs)
    scores = _scores(prepared, sets, known)
    similarity = (
        np.concatenate([set_scores.similarity for set_scores in scores]) if scores else None
    )
    none = NegativeSources("random", (), known, None)
    without_negatives = TrainingSet(mixture, sets, quotas, train, pairs, scores, similarity, none)
    if prepared.settings.prune_before_mining:
        methods = without_negatives.methods(prepared.recipe, prepared.processes)
        pruned = ~np.concatenate([method.kept for method in methods])
        known = known.without(pairs.pair_query[pruned], pairs.pair_doc[pruned])
    return replace(
        without_negatives,
        negatives=_negatives(prepared, without_negatives, known),
        passages=BestPassages.of(prepared, train, mixture.joined, first_passages),
    )


def _sets_of(mixture: Mixture) -> tuple[SetTrainingPairs, ...]:
    """Return the training pairs of each data set."""
    sets, first_query_index = [], 0
    parts = zip(mixture.data_sets, mixture.decided, mixture.first_rows, strict=True)
    for data, decided, (_, first_doc_row) in parts:
        train = data.training_split()
        pairs = train.pairs()
        sets.append(SetTrainingPairs(data, train, pairs, decided, first_query_index, first_doc_row))
        first_query_index += train.n_queries
    return tuple(sets)


def _scores(
    prepared: Prepared, sets: Sequence[SetTrainingPairs], known: KnownPositives
) -> tuple[PairScores, ...]:
    """Compute the base model's scores of each set's pairs; none if the method needs none."""
    settings, method = prepared.settings, prepared.recipe.method_class
    if not method.needs_scores(prepared.recipe.method_settings):
        return ()
    encoder, text = prepared.model.encoder, settings.corpus_text
    return tuple(
        pretrained_scores(
            data_set.pairs,
            encoder.encode_queries(data_set.data, data_set.train.query_rows),
            encoder.encode_corpus(data_set.data, text),
            temperature=resolved(settings.temperature),
            set_size=settings.documents_per_pass(prepared.processes),
            seed=settings.seed,
            known=data_set.known_of_set(known) if settings.mask_known_positives else None,
            pool=DocumentPool.of(data_set.data, text),
            cbs_pool=method.cbs_pool_size(prepared.recipe.method_settings),
        )
        for data_set in sets
    )


def _negatives(
    prepared: Prepared, training_set: TrainingSet, known: KnownPositives
) -> NegativeSources:
    """Build the negatives of each set, without ``known`` positives."""
    settings, encoder, chosen = prepared.settings, prepared.model.encoder, prepared.data.negatives
    sources, sets, quotas = [], training_set.sets, training_set.quotas
    fractions = [1.0] if quotas is None else quotas.probabilities.tolist()
    for data_set, fraction in zip(sets, fractions, strict=True):
        kind, data = chosen, data_set.data
        has_none_given = kind == "given" and data.given_negatives is None
        if has_none_given or (kind == "teacher" and data.teacher is None):
            kind = "random"  # only other data sets have this kind
        if quotas is not None:
            kind = by_draws(kind, settings, len(data.corpus) / fraction, prepared.processes)
        if kind != chosen:
            log.info("note: negatives of %s are %s", data.title, kind)
        miner = Miner.of(encoder, data, settings.corpus_text, settings)
        query_rows, known_of_set = data_set.train.query_rows, data_set.known_of_set(known)
        inputs = NegativeInputs(data, query_rows, data_set.pairs, known_of_set, settings, miner)
        sources.append(build_negatives(kind, inputs))
    lists = [of_set.lists if isinstance(of_set, ListedNegatives) else None for of_set in sources]
    joined = DocumentLists.joined(
        lists,
        [data_set.pairs.n_queries for data_set in sets],
        [data_set.first_doc_row for data_set in sets],
    )
    return NegativeSources(chosen, tuple(sources), known, joined)


def loss_weights(weights: FloatArray) -> NDArray[np.float32]:
    """Return the factor of each pair's loss, its weight over the mean weight: float32."""
    exact = np.asarray(weights, dtype=np.float64)
    return np.asarray(exact / exact.mean(), dtype=np.float32)


Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]
Lookup = Callable[[IntArray], Sequence[Any]]
"""Returns the model's input for rows of the query table or of the corpus."""


class PairDataset(Dataset[dict[str, Any]]):
    """Looks up a batch at a time. An item has a column for the query, and a column per document.

    Args:
        query_rows: int32 ``[n]``, the query row of each training query.
        n_negatives: explicit negatives per query.
        look_up_queries: returns the inputs of query rows.
        look_up_documents: returns the inputs of rows of the corpus, or of passages.
        passages: chooses the passages; ``None`` if documents stay whole.
    """

    def __init__(
        self,
        query_rows: NDArray[np.int32],
        n_negatives: int,
        look_up_queries: Lookup,
        look_up_documents: Lookup,
        passages: BestPassages | None = None,
    ) -> None:
        self.passages = passages
        self.query_rows, self.column_names = query_rows, list(column_roles(n_negatives))
        self.look_up_queries, self.look_up_documents = look_up_queries, look_up_documents

    def __len__(self) -> int:
        return len(self.query_rows)

    def __getitems__(self, batch: Batch) -> tuple[Batch, list[dict[str, Any]]]:
        """Return a batch with the items of this process."""
        query_indices, rows = batch.queries[batch.local], batch.doc_rows[batch.local]
        if self.passages is not None:
            rows = self.passages.rows(query_indices, rows)
        queries = self.look_up_queries(self.query_rows[query_indices])
        documents = iter(self.look_up_documents(rows.ravel()))
        anchor, *document_columns = self.column_names
        return batch, [
            {anchor: query, **{name: next(documents) for name in document_columns}}
            for query in queries
        ]


def collate(read: tuple[Batch, list[dict[str, Any]]], collator: Collator) -> dict[str, Any]:
    """Collate the items of a batch. The loss gets the batch as its labels."""
    batch, items = read
    return {**collator(items), "label": batch}


def collate_tokens(
    items: Sequence[dict[str, Any]], prompt_lengths: Mapping[str, int | None]
) -> dict[str, Any]:
    """Turn items with token ids into columns for the loss, all on the CPU.

    Args:
        items: the rows of the batch.
        prompt_lengths: tokens of each column's prompt, for a pooling that excludes the prompt.

    Returns:
        The lists ``COLUMN_input_ids``.
    """
    columns: dict[str, Any] = {}
    for column, length in prompt_lengths.items():
        columns[f"{column}_input_ids"] = [item[column] for item in items]
        columns[f"{column}_prompt_length"] = length
    return columns


def column_roles(n_negatives: int) -> dict[str, Role]:
    """Return whether each text column holds queries or documents, in the order of the loss."""
    negatives = [f"negative_{number}" for number in range(1, n_negatives + 1)]
    return {"anchor": "query", **dict.fromkeys(["positive", *negatives], "document")}


def make_dataset(
    model: SentenceTransformer, training_set: TrainingSet, settings: TrainSettings
) -> tuple[PairDataset, Collator | None]:
    """Return the data set and its collator, which is ``None`` for that of sentence-transformers.

    The data set holds row numbers for a model that looks up vectors. Otherwise it holds token ids,
    or texts if OPERA does not know the model's tokenizer.
    """
    data, query_rows = training_set.data, training_set.train.query_rows
    n_negatives, corpus_text = settings.n_negatives, settings.corpus_text
    if reads_vectors(model):
        return PairDataset(query_rows, n_negatives, _rows_as_texts, _rows_as_texts), None
    sources = {
        role: TokenSource.of(model, data, role, prompt_for(model, role), corpus_text)
        for role in ROLES
    }
    if (best := training_set.passages) is not None:
        table, digest = best.passages.table, best.passages.digest
        sources["document"] = replace(sources["document"], table=table, digest=digest)
    if not all(source.suffices for source in sources.values()):
        documents = sources["document"].table
        look_up_queries = partial(data.queries.texts, corpus_text="text")
        look_up_documents = partial(documents.texts, corpus_text=corpus_text)
        return PairDataset(query_rows, n_negatives, look_up_queries, look_up_documents, best), None
    sampled = resolved(settings.max_steps) * settings.queries_per_step(PartialState().num_processes)
    dataset = PairDataset(
        query_rows,
        n_negatives,
        sources["query"].lookup(sampled),
        sources["document"].lookup(sampled * (1 + n_negatives)),
        best,
    )
    lengths = {role: source.prompt_length for role, source in sources.items()}
    prompt_lengths = {column: lengths[role] for column, role in column_roles(n_negatives).items()}
    return dataset, partial(collate_tokens, prompt_lengths=prompt_lengths)


def _rows_as_texts(text_rows: IntArray) -> list[str]:
    return [str(text_row) for text_row in text_rows.tolist()]
