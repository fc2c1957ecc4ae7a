"""The kinds of models that sentence-transformers trains. What differs between kinds stands here."""

from opera.retrieval.kinds.base import KINDS, Kind, kind_of
from opera.retrieval.kinds.dense import Dense
from opera.retrieval.kinds.multi_vector import MultiVector
from opera.retrieval.kinds.reranker import Reranker
from opera.retrieval.kinds.sparse import Sparse

__all__ = ["KINDS", "Dense", "Kind", "MultiVector", "Reranker", "Sparse", "kind_of"]
