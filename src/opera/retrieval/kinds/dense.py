"""Dense models: one vector per text."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

from opera.retrieval.kinds.base import KINDS, Kind


class Dense(Kind):
    """A text is one vector; the score of a pair is their cosine, or the model's similarity."""

    name, title = "dense", "dense model"
    model_class, arguments_class = SentenceTransformer, SentenceTransformerTrainingArguments


KINDS[Dense.name] = Dense
