"""Measure a form beside the model it was made of: quality on the test split, speed on the CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.config.trainer import PRIMARY
from opera.core.intervals import mean_interval
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.deployment.record import Figures
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder
from opera.retrieval.locate import run_corpus_text
from opera.retrieval.models import lengths_of, load_model, set_lengths

TIMED_DOCUMENTS = 64
ROUNDS = 5
SPLIT = "test"


@dataclass(frozen=True)
class Reference:
    """The model as trained, measured: what every form is compared with.

    Attributes:
        data: the data set, with the run's splits.
        text: what of a document is read.
        evaluation: on the test split, in fp32.
        encoder: the model on the CPU, with the run's lengths.
        sample: documents that speed is measured on.
    """

    data: RetrievalData
    text: CorpusText
    evaluation: Evaluation
    encoder: Encoder
    sample: list[str]

    @classmethod
    def of(cls, model: str, data: RetrievalData) -> Reference:
        """Measure a model, as :func:`opera.evaluate` does, in fp32."""
        encoder, text = open_encoder(model, "fp32"), run_corpus_text(model)
        evaluation = evaluate_encoder(encoder, data, SPLIT, [PRIMARY], text)
        on_cpu = load_model(model, "cpu")
        set_lengths(on_cpu, lengths_of(encoder.model))
        rows = np.linspace(0, len(data.corpus) - 1, min(TIMED_DOCUMENTS, len(data.corpus))).astype(
            np.int64
        )
        return cls(data, text, evaluation, _encoder(on_cpu), data.corpus.texts(rows, text))

    def figures(self, exported: SentenceTransformer) -> Figures:
        """Measure a form, loaded as a user will load it."""
        set_lengths(exported, lengths_of(self.encoder.model))
        encoder = _encoder(exported)
        evaluation = evaluate_encoder(encoder, self.data, SPLIT, [PRIMARY], self.text)
        before, after = (found.per_query[PRIMARY] for found in (self.evaluation, evaluation))
        low, high = mean_interval(after - before)
        speed, least_cosine = self._beside(encoder)
        return Figures(
            before=float(before.mean()),
            after=float(after.mean()),
            difference=float((after - before).mean()),
            low=low,
            high=high,
            speed=speed,
            least_cosine=least_cosine,
        )

    def _beside(self, encoder: Encoder) -> tuple[float, float | None]:
        """Encode the sample with both in turn; the first round of each, which sets things up,
        counts for nothing.
        """
        ratios, embeddings = [], dict[str, NDArray[np.float32]]()
        for _ in range(ROUNDS + 1):
            seconds = {}
            for name, each in (("before", self.encoder), ("after", encoder)):
                start = time.perf_counter()
                embeddings[name] = each.encode(self.sample, "document")
                seconds[name] = time.perf_counter() - start
            ratios.append(seconds["before"] / seconds["after"])
        same_size = encoder.dimension == self.encoder.dimension
        cosines = (embeddings["before"] * embeddings["after"]).sum(axis=1) if same_size else None
        return float(np.median(ratios[1:])), None if cosines is None else float(cosines.min())


def megabytes(folder: Path, pattern: str) -> float:
    """Size of the files that match, in megabytes of 10⁶ bytes."""
    return round(sum(file.stat().st_size for file in folder.rglob(pattern)) / 1e6, 2)


def _encoder(model: SentenceTransformer) -> Encoder:
    return Encoder(model, "fp32", use_cache=False)
