"""Rerankers: cross-encoders that read a query and a document together and give the pair one score."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from opera.config.encoding import EncodingSettings
from opera.core.arguments import whole_number
from opera.core.arrays import IntArray
from opera.core.errors import ModelError, TrainingError
from opera.core.paths import expand_user
from opera.core.processes import cached_by_all, process_index
from opera.core.progress import progress
from opera.core.reproducible import is_reproducible
from opera.core.terminal import first_line, shown
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.encoder import gather_rows
from opera.retrieval.locate import locate_model
from opera.retrieval.model_checks import check_numbers
from opera.retrieval.models import load_safely, weights_digest
from opera.retrieval.trust import download_model

log = logging.getLogger("opera")

BATCHES_PER_CHUNK = 32
SCORES_FILE = "scores.npy"
PROBE = ("a", "b")
SHORTER = "pass a smaller max_length"


class RerankerOptions(NamedTuple):
    """How a reranker reads texts.

    Attributes:
        query_prompt: text before each query.
        document_prompt: text before each document.
        max_length: tokens of query and document together; ``None`` for the model's own limit.
        batch_size: pairs per call of the model, lowered where memory runs out.
        precision: as in the settings.
    """

    query_prompt: str = ""
    document_prompt: str = ""
    max_length: int | None = None
    batch_size: int = 64
    precision: Precision = "auto"

    @classmethod
    def given(
        cls,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        max_length: int | None = None,
    ) -> RerankerOptions:
        """Check what a function or command was given.

        Raises:
            SettingError: for a prompt that is no text, or a length that is no whole number of 8 or more.
        """
        prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
        checked = EncodingSettings.parse(
            {name: prompt for name, prompt in prompts.items() if prompt is not None}
        )
        length = None if max_length is None else whole_number(max_length, "max_length", 8)
        return cls(checked.query_prompt or "", checked.document_prompt or "", length)


class Reranker:
    """A cross-encoder with everything that decides the score of a pair.

    Scores are raw logits, of any size and sign: a sigmoid, as many models name for their output, would make all good
    documents alike. Between two calls of :meth:`score_pairs` the model waits in the memory of the CPU.
    """

    def __init__(self, model: CrossEncoder, options: RerankerOptions) -> None:
        self.model, self.options = model, options
        self.device = pick_device()
        self.batch_size = options.batch_size
        self.precision = resolve_precision(options.precision, self.device, is_transformer=True)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides a score but the texts, in hex."""
        total = weights_digest(self.model)
        tokenizer = getattr(self.model.tokenizer, "backend_tokenizer", None)
        total.update(b"" if tokenizer is None else tokenizer.to_str().encode())
        options = (
            self.options.query_prompt,
            self.options.document_prompt,
            self.model.max_seq_length,
        )
        total.update(
            repr([*options, self.model.prompts, self.precision, is_reproducible()]).encode()
        )
        return str(total.hexdigest())

    def score(self, queries: list[str], documents: list[str]) -> NDArray[np.float32]:
        """Score pairs of texts: float32 ``[m]``, higher for a document that fits its query better.

        Raises:
            ModelError: if a score is no number.
            TrainingError: if memory runs out even for a single pair.
        """
        before_query, before_document = self.options.query_prompt, self.options.document_prompt
        scores = self._predict(
            [
                (before_query + query, before_document + text)
                for query, text in zip(queries, documents, strict=True)
            ]
        )
        if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
            raise ModelError(
                f"the reranker's score of {shown(queries[bad[0]])} is no number; use another model"
            )
        return scores

    def _predict(self, texts: list[tuple[str, str]]) -> NDArray[np.float32]:
        """Call the model, with half the batch size from each time on that memory runs out."""
        while True:
            try:
                with autocast(self.precision, self.device):
                    found = self.model.predict(
                        texts, batch_size=self.batch_size, show_progress_bar=False
                    )
                return np.asarray(found, dtype=np.float32)
            except Exception as error:
                if not should_reduce_batch_size(error):
                    raise
                if self.batch_size == 1:
                    raise TrainingError(
                        f"out of memory while a reranker reads one pair: {SHORTER}"
                    ) from error
            self.batch_size //= 2
            clear_device_cache(garbage_collection=True)
            log.info(
                "note: out of memory: the reranker now reads %d pairs at once", self.batch_size
            )

    def score_pairs(
        self,
        data: RetrievalData,
        query_rows: IntArray,
        doc_rows: IntArray,
        corpus_text: CorpusText = "title_text",
    ) -> NDArray[np.float32]:
        """Score pairs of a data set, or read their scores from the cache: float32 ``[m]``. All processes call this.

        Args:
            data: the texts.
            query_rows: int ``[m]``, rows of the query table.
            doc_rows: int ``[m]``, rows of the corpus.
            corpus_text: what of a document is read.
        """
        if len(query_rows) == 0:
            return np.empty(0, dtype=np.float32)
        pairs = np.stack([np.asarray(query_rows), np.asarray(doc_rows)]).astype(np.int64)
        chunk = self.options.batch_size * BATCHES_PER_CHUNK

        def parts(share: slice) -> Iterator[NDArray[np.float32]]:
            with progress(
                "scoring pairs", share.stop - share.start, "pairs", hidden=process_index() > 0
            ) as bar:
                for start in range(share.start, share.stop, chunk):
                    queries, documents = pairs[:, start : min(start + chunk, share.stop)]
                    texts = (
                        data.queries.texts(queries, "text"),
                        data.corpus.texts(documents, corpus_text),
                    )
                    yield self.score(*texts)[:, None]
                    bar.update(len(queries))

        def write(folder: Path) -> None:
            self.model.to(self.device)
            scores = gather_rows(parts, pairs.shape[1], 1, chunk)
            if process_index() == 0:
                np.save(folder / SCORES_FILE, scores)
            self.model.to("cpu")

        key = "\0".join(
            [
                self.fingerprint,
                data.fingerprint,
                corpus_text,
                hashlib.sha256(pairs.tobytes()).hexdigest(),
            ]
        )
        home = cached_by_all("reranked", hashlib.sha256(key.encode()).hexdigest()[:32], write)
        return np.array(np.load(home / SCORES_FILE)[:, 0])


def open_reranker(spec: str | Path, options: RerankerOptions | None = None) -> Reranker:
    """Load a cross-encoder: a folder of sentence-transformers or transformers, or its id on the hub.

    It is trusted as little as any model: no code that its folder names, no pickles.

    Raises:
        ModelError: if there is none, it cannot be loaded, or it does not give one score per pair.
    """
    options = options or RerankerOptions()
    place = expand_user(spec, "reranker")
    found = locate_model(place)
    try:
        organization = CrossEncoder.default_huggingface_organization
        folder = download_model(found, organization) if isinstance(found, str) else found
        reading = {"max_length": options.max_length, "activation_fn": torch.nn.Identity()}
        model, missing = load_safely(CrossEncoder, folder, "cpu", **reading)
        _check(model, missing, place)
    except ModelError:
        raise
    except Exception as error:  # loaders raise many types; all mean that the model is not usable
        reason = first_line(error)
        raise ModelError(
            f"{place}: cannot be loaded as a reranker (a cross-encoder): {reason}"
        ) from error
    return Reranker(model, options)


def _check(model: CrossEncoder, missing: list[str], place: str) -> None:
    """Refuse what is no reranker; transformers gives an embedding model a head of random numbers."""
    if missing:
        raise ModelError(
            f"{place}: is no reranker: its files lack the weights {shown(missing[0])}; pass a cross-encoder, such as "
            "BAAI/bge-reranker-base, or an embedding model with --model"
        )
    check_numbers(model, place)
    if model.num_labels != 1:
        raise ModelError(
            f"{place}: must give one score per pair to be a reranker, but gives {model.num_labels}"
        )
    if not np.isfinite(model.predict([PROBE])).all():
        raise ModelError(f"{place}: its scores are no numbers; use another copy of it")
