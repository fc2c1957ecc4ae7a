"""The model that trains in place of the pretrained one, and what becomes of it afterwards."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Normalize, Router

from opera.adapter.file import save
from opera.adapter.projection import ResidualProjection
from opera.config.tuning import AdapterSettings
from opera.core.errors import TrainingError
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder
from opera.retrieval.frozen import FrozenVectors, VectorLookup, embed_rows
from opera.retrieval.models import load_model, put_lengths
from opera.retrieval.prompts import Role

CHECKED_TEXTS = 8
SAME_COSINE = 0.999
"""Cosine of two embeddings of a text that differ by rounding alone: half precision, other batches."""


def adapter_model(
    dimension: int, settings: AdapterSettings, *, seed: int, device: str, digest: str = ""
) -> SentenceTransformer:
    """Make the model that trains: a lookup of frozen vectors, then a projection for each role that has one.

    Args:
        dimension: length of a vector.
        settings: which sides are projected, and the rank.
        seed: seed of the draws.
        device: where it trains.
        digest: SHA-256 of the files that the vectors come from, if any.
    """
    routes: dict[str, list[Module]] = {"query": [], "document": []}
    for role in ("query", "document") if settings.adapter_kind == "both" else ("query",):
        routes[role].append(ResidualProjection(dimension, settings.adapter_rank).start(seed, role))
    model = SentenceTransformer(
        modules=[VectorLookup(dimension, digest), _router(routes)], device=device
    )
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model


def encode_all(encoder: Encoder, data: RetrievalData, corpus_text: CorpusText) -> FrozenVectors:
    """Encode every text of a data set once, or read the vectors from the cache."""
    queries = encoder.encode_queries(data, np.arange(len(data.queries)))
    return FrozenVectors(queries, encoder.encode_corpus(data, corpus_text))


def matrices(trained: SentenceTransformer) -> dict[str, NDArray[np.float32]]:
    """Return I + W of each projected role: float32 ``[d, d]``."""
    return {role: projection.matrix().numpy() for role, projection in _projections(trained).items()}


def attach(base: SentenceTransformer, trained: SentenceTransformer) -> SentenceTransformer:
    """Put a trained adapter after its pretrained model, in modules of sentence-transformers alone.

    The result shares the modules of ``base``, which stays as it is.
    """
    routes: dict[str, list[Module]] = {"query": [], "document": []}
    for role, projection in _projections(trained).items():
        routes[role].append(projection.as_dense().to(base.device))
    joined = copy.copy(base)
    joined._modules = OrderedDict(base._modules)
    joined.append(_router({role: [*modules, Normalize()] for role, modules in routes.items()}))
    return joined


def save_adapted(
    folder: Path, base: SentenceTransformer | None, trained: SentenceTransformer
) -> None:
    """Write what a run hands over: a sentence-transformers folder, or ``adapter.npz`` where there is no base model."""
    if base is None:
        save(folder, matrices(trained))
    else:
        attach(base, trained).save_pretrained(str(folder), create_model_card=False)


def check_saved(
    folder: Path,
    encoder: Encoder,
    trained: SentenceTransformer,
    data: RetrievalData,
    text: CorpusText,
    lengths: Mapping[str, int | None],
) -> None:
    """Load what was handed over as a user will, and compare its embeddings of some texts with those it was measured by.

    Raises:
        TrainingError: if they are not the same up to rounding.
    """
    model = load_model(folder, encoder.device)
    put_lengths(model, lengths)
    loaded = Encoder(model, encoder.precision, use_cache=False)
    parts: tuple[tuple[Role, TextTable, CorpusText], ...] = (
        ("query", data.queries, "text"),
        ("document", data.corpus, text),
    )
    for role, table, corpus_text in parts:
        rows = np.linspace(0, len(table) - 1, min(CHECKED_TEXTS, len(table))).astype(np.int64)
        again = loaded.encode(table.texts(rows, corpus_text), role)
        apart = np.square(again - embed_rows(trained, role, rows)).sum(
            axis=1
        )  # 0 too where a text has no token at all
        if not (apart <= 2 - 2 * SAME_COSINE).all():
            raise TrainingError(
                f"{folder}: the saved model embeds a {role} otherwise than the vectors that the adapter was "
                "trained on; report this, with the model's name"
            )


def _router(routes: dict[str, list[Module]]) -> Router:
    """Route by role; a text without one counts as a document."""
    return Router.for_query_document(
        query_modules=routes["query"], document_modules=routes["document"]
    )


def _projections(trained: SentenceTransformer) -> dict[str, ResidualProjection]:
    routes = trained[1].sub_modules
    return {role: modules[0] for role, modules in routes.items() if len(modules)}
