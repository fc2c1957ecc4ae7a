"""Sparse models, such as SPLADE: a weight per word of the vocabulary."""

from __future__ import annotations

from sentence_transformers import SparseEncoder, SparseEncoderTrainingArguments

from opera.retrieval.kinds.base import KINDS, Kind


class Sparse(Kind):
    """A text is a vector with few values that are not 0; the score of a pair is their product."""

    name, title = "sparse", "sparse model"
    model_class, arguments_class = SparseEncoder, SparseEncoderTrainingArguments


KINDS[Sparse.name] = Sparse
