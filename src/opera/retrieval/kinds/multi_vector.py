"""Multi-vector models, such as ColBERT: one vector per token."""

from __future__ import annotations

from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainingArguments

from opera.retrieval.kinds.base import KINDS, Kind


class MultiVector(Kind):
    """A text is a vector per token; the score of a pair is MaxSim: each query token takes its best match."""

    name, title = "multi-vector", "multi-vector model"
    model_class, arguments_class = MultiVectorEncoder, MultiVectorEncoderTrainingArguments


KINDS[MultiVector.name] = MultiVector
