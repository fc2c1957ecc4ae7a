"""Rerankers (cross-encoders): they read a query and a document together."""

from __future__ import annotations

from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments

from opera.retrieval.kinds.base import KINDS, Kind


class Reranker(Kind):
    """A model reads a pair of texts and returns its score, a logit."""

    name, title = "reranker", "reranker (a cross-encoder)"
    model_class, arguments_class = CrossEncoder, CrossEncoderTrainingArguments
    trainer_class = CrossEncoderTrainer


KINDS[Reranker.name] = Reranker
