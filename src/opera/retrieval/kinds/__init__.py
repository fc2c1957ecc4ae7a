"""The kinds of models that sentence-transformers trains. What differs between kinds stands here."""

from opera.retrieval.kinds.base import (
    KINDS,
    EncodingKind,
    Kind,
    KindName,
    encoding_kind_in,
    encoding_kind_of,
    kind_in,
    kind_of,
)
from opera.retrieval.kinds.dense import Dense
from opera.retrieval.kinds.multi_vector import MultiVector
from opera.retrieval.kinds.reranker import Reranker
from opera.retrieval.kinds.sparse import Sparse

__all__ = [
    "KINDS",
    "Dense",
    "EncodingKind",
    "Kind",
    "KindName",
    "MultiVector",
    "Reranker",
    "Sparse",
    "encoding_kind_in",
    "encoding_kind_of",
    "kind_in",
    "kind_of",
]
