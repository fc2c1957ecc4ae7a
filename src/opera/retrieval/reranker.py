"""Rerankers: cross-encoders that read a query and a document together and score the pair."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from opera.config.training import EncodingSettings
from opera.core.arguments import expand_user, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import ModelError, TrainingError, is_out_of_memory
from opera.core.processes import process_index
from opera.core.progress import progress
from opera.core.terminal import shown
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.identity.model import cache_key, computation_key, fingerprint, may_cache
from opera.retrieval.device import (
    Precision,
    autocast,
    pick_device,
    resolve_precision,
)
from opera.retrieval.encoder import cached_arrays, gather_parts, rows_digest
from opera.retrieval.kinds import KINDS
from opera.retrieval.models import load_safely

BATCH, CHUNK = 64, 2048
"""Pairs per call of the model, halved if memory runs out, and pairs per progress step."""


class Reranker:
    """A cross-encoder with everything that decides the score of a pair.

    Scores are raw logits. Many models apply a sigmoid, but it would give all good documents nearly
    the same score. Between two calls of :meth:`score_pairs` the model stays in CPU memory.

    Attributes:
        scored_pairs: how many pairs :meth:`score_pairs` did not read from the cache.
        seconds: the time for them.

    Args:
        model: the model.
        query_prompt: text before each query.
        document_prompt: text before each document.
        precision: as in the settings.
    """

    def __init__(
        self,
        model: CrossEncoder,
        query_prompt: str = "",
        document_prompt: str = "",
        precision: Precision = "auto",
    ) -> None:
        self.model, self.prompts = model, (query_prompt, document_prompt)
        self.device = pick_device()
        self.precision = resolve_precision(precision, self.device, is_transformer=True)
        self.scored_pairs, self.seconds = 0, 0.0
        self._batch = BATCH

    @property
    def fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a score, except the texts."""
        return cache_key(
            [
                fingerprint(self.model),
                repr([self.prompts, self.model.prompts]),
                computation_key(self.precision, self.device),
            ]
        )

    def score(self, queries: list[str], documents: list[str]) -> NDArray[np.float32]:
        """Score pairs of texts: float32 ``[m]``, higher for a better match.

        Raises:
            ModelError: if a score is not finite.
            TrainingError: if memory runs out even for a single pair.
        """
        before_query, before_document = self.prompts
        scores = self._predict(
            [
                (before_query + query, before_document + text)
                for query, text in zip(queries, documents, strict=True)
            ]
        )
        if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
            raise ModelError(
                f"the reranker's score for {shown(queries[bad[0]])} is NaN or infinite; use "
                "another model"
            )
        return scores

    def _predict(self, texts: list[tuple[str, str]]) -> NDArray[np.float32]:
        options = {"batch_size": self._batch, "show_progress_bar": False}
        try:
            with autocast(self.precision, self.device):
                return np.asarray(self.model.predict(texts, **options), dtype=np.float32)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if self._batch == 1:
                raise TrainingError(
                    "out of memory while a reranker reads one pair: pass a smaller max_length"
                ) from error
        self._batch //= 2
        return self._predict(texts)

    def score_pairs(
        self,
        data: RetrievalData,
        query_rows: IntArray,
        doc_rows: IntArray,
        corpus_text: CorpusText = "title_text",
    ) -> NDArray[np.float32]:
        """Score pairs of rows ``[m]`` with all processes, or read the cache: float32 ``[m]``."""
        if len(query_rows) == 0:
            return np.empty(0, dtype=np.float32)
        pairs = np.stack([np.asarray(query_rows), np.asarray(doc_rows)]).astype(np.int64)

        def parts(share: slice) -> Iterator[NDArray[np.float32]]:
            count, hidden = share.stop - share.start, process_index() > 0
            with progress("scoring pairs", count, "pairs", hidden=hidden) as bar:
                for start in range(share.start, share.stop, CHUNK):
                    queries, documents = pairs[:, start : min(start + CHUNK, share.stop)]
                    query_texts = data.queries.texts(queries, "text")
                    yield self.score(query_texts, data.corpus.texts(documents, corpus_text))
                    bar.update(len(queries))

        def scores() -> NDArray[np.float32]:
            self.model.to(self.device)
            began = time.perf_counter()
            scored = np.concatenate(gather_parts(parts, pairs.shape[1], CHUNK))
            self.seconds += time.perf_counter() - began
            self.scored_pairs += len(scored)
            self.model.to("cpu")
            return scored

        if not may_cache(self.model):
            return scores()
        key = cache_key([self.fingerprint, data.fingerprint, corpus_text, rows_digest(pairs)])
        return cached_arrays("reranked", key, lambda: {"scores": scores()})["scores"]


def reranker_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of encoding that a reranker reads, and those that are left for a model.

    The prompts are the reranker's. Both have the same precision.
    """
    left = {name: value for name, value in settings.items() if not name.endswith("_prompt")}
    taken = {name: settings[name] for name in settings if name not in left or name == "precision"}
    return taken, left


def open_reranker(
    spec: str | Path,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    max_length: int | None = None,
    precision: Precision = "auto",
) -> Reranker:
    """Load a cross-encoder from a folder or the hub, without running its code or reading pickles.

    Raises:
        ModelError: if it is missing, cannot be loaded, or does not give one score per pair.
        SettingError: for a prompt that is not a text, or a length below 8.
    """
    prompts = EncodingSettings.chosen(
        query_prompt=query_prompt, document_prompt=document_prompt, precision=precision
    )
    length = None if max_length is None else whole_number(max_length, "max_length", 8)
    options = {"max_length": length, "activation_fn": torch.nn.Identity()}
    model = load_safely(KINDS["reranker"], expand_user(spec, "reranker"), "cpu", _check, **options)
    return Reranker(model, **prompts)


def _check(model: CrossEncoder, missing: list[str], title: str, folder: Path) -> None:
    """Refuse a model that is not a reranker; libraries give an embedding model a random head."""
    if missing:
        raise ModelError(
            f"{title}: is not a reranker: its files lack the weights {shown(missing[0])}; pass a "
            "cross-encoder, such as BAAI/bge-reranker-base, or an embedding model with --model"
        )
    check_labels(model, title)


def check_labels(model: CrossEncoder, title: str) -> None:
    """Refuse a model that does not give one score per pair."""
    if model.num_labels != 1:
        count = model.num_labels
        raise ModelError(f"{title}: a reranker must give one score per pair, but it gives {count}")
