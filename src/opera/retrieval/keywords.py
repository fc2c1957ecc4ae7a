"""Keyword search, and hybrid search: BM25 over the words of a corpus, fused with a model's scores.

Words are in lower case, without English stop words, and reduced to their English stems.

In hybrid search, each ranking contributes its 100 best documents. Their scores are scaled for each
query:

    z(d) = (score(d) - score of the 100th) / (score of the first - score of the 100th)

A document outside a ranking's 100 has z = 0 there. The fused score is (1 - w)·z of the model + w·z
of keyword search. OpenSearch calls this min_max normalisation with an arithmetic mean. It differs
for queries that match fewer than 100 documents: there OpenSearch scales from the lowest match, and
OPERA from 0."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from opera.data import TextTable
from opera.data.texts import CorpusText
from opera.retrieval.measures import Ranking

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs each index at the level debug

WORD = r"[\w\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff]{2,}"
"""A word: letters, digits, and the marks of Latin, Hebrew, Arabic and Indic scripts."""
SAMPLE = 1000
"""Documents that decide whether a corpus has spaces between words."""
LETTERS = re.compile(r"[^\W\d_]")
WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
FEW = 0.25
"""With a larger fraction of such letters, a corpus has no keyword search."""


class KeywordIndex:
    """BM25 scores of the words of a corpus.

    Args:
        scores: the index of bm25s.
        corpus: for the ids, which break ties.
    """

    def __init__(self, scores: bm25s.BM25, corpus: TextTable) -> None:
        self._scores, self._corpus = scores, corpus

    @classmethod
    def build(cls, corpus: TextTable, corpus_text: CorpusText) -> KeywordIndex:
        """Count the words of a corpus that has words, see :func:`reason_against`."""
        word_ids, words = bm25s.tokenize(
            corpus.texts(None, corpus_text),
            stopwords="en",
            token_pattern=WORD,
            show_progress=False,
        )
        # bm25s numbers stems in the order of a set, which differs between processes
        stems = dict[str, int]()
        stem_of_word = [stems.setdefault(stem, len(stems)) for stem in _stem(list(words))]
        stem_ids = [[stem_of_word[word] for word in document] for document in word_ids]
        scores = bm25s.BM25()
        scores.index((stem_ids, stems), show_progress=False)
        return cls(scores, corpus)

    @classmethod
    def open(cls, folder: Path, corpus: TextTable) -> KeywordIndex:
        """Open an index that :meth:`save` wrote."""
        return cls(bm25s.BM25.load(folder, mmap=True), corpus)

    def save(self, folder: Path) -> None:
        """Write the files of bm25s: NumPy arrays and JSON, without pickle."""
        self._scores.save(folder, show_progress=False)

    def search(self, queries: Sequence[str], depth: int) -> Ranking:
        """Rank the documents that share a word with each query, best first.

        For equal scores, the greater document id wins. Rows that are too short end with -1.
        """
        tokens = _words(queries)
        depth = min(depth, len(self._corpus))
        doc_rows = np.full((len(tokens), depth), -1, dtype=np.int32)
        scores = np.full(doc_rows.shape, -np.inf, dtype=np.float32)
        for query, words in enumerate(tokens):
            stems = self._scores.get_tokens_ids(_stem(words))
            query_scores = self._scores.get_scores_from_ids(stems)
            best = self._best(query_scores, depth)
            doc_rows[query, : len(best)], scores[query, : len(best)] = best, query_scores[best]
        return Ranking(doc_rows, scores)

    def _best(self, scores: np.ndarray, depth: int) -> np.ndarray:
        """Return the rows of the best documents with a score above 0."""
        least = np.partition(scores, -depth)[-depth]
        rows = np.flatnonzero((scores >= least) & (scores > 0))
        return rows[np.lexsort((self._corpus.id_rank[rows], scores[rows]))][::-1][:depth]


def _words(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text, without English stop words."""
    return bm25s.tokenize(
        list(texts), stopwords="en", token_pattern=WORD, return_ids=False, show_progress=False
    )


def _stem(words: list[str]) -> list[str]:
    """Reduce English words to their stems."""
    return Stemmer.Stemmer("english").stemWords(words)


def reason_against(corpus: TextTable, corpus_text: CorpusText) -> str | None:
    """Say why the words of a corpus cannot be searched; ``None`` if they can."""
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(SAMPLE, len(corpus))).astype(np.int64))
    text = " ".join(corpus.texts(rows, corpus_text))
    if len(WITHOUT_SPACES.findall(text)) > FEW * len(LETTERS.findall(text)):
        return "has no spaces between words"
    if not any(_words([text])):
        return "has no words"
    return None


POOL = 100
"""Documents of each ranking."""


class Fusion:
    """The pooled documents of two rankings, to be fused with any weight.

    Args:
        model: the model's ranking.
        keywords: the ranking of keyword search for the same queries.
        corpus: for the ids, which break ties.
    """

    def __init__(self, model: Ranking, keywords: Ranking, corpus: TextTable) -> None:
        rankings = [scaled(model), scaled(keywords)]
        doc_rows = np.concatenate([ranking.doc_rows for ranking in rankings], axis=1)
        scores = np.zeros((2, *doc_rows.shape))
        width = rankings[0].doc_rows.shape[1]
        scores[0, :, :width], scores[1, :, width:] = (ranking.scores for ranking in rankings)
        order = np.argsort(doc_rows, axis=1, kind="stable")
        self._doc_rows = np.take_along_axis(doc_rows, order, axis=1)
        self._scores = np.take_along_axis(scores, order[None], axis=2)
        # a document of both rankings stands in two neighbouring columns
        twice = self._doc_rows[:, 1:] == self._doc_rows[:, :-1]
        self._scores[:, :, :-1] += np.where(twice, self._scores[:, :, 1:], 0)
        self._doc_rows[:, 1:][twice] = -1
        self._id_rank = corpus.id_rank

    def ranking(self, weight: float, depth: int = POOL) -> Ranking:
        """Fuse with the weight of keyword search; for equal scores, the greater id wins."""
        fused = (1 - weight) * self._scores[0] + weight * self._scores[1]
        scores = np.where(self._doc_rows < 0, -np.inf, fused).astype(np.float32)
        order = np.lexsort((self._id_rank[self._doc_rows], scores), axis=1)[:, : -depth - 1 : -1]
        rows, scores = (np.take_along_axis(a, order, axis=1) for a in (self._doc_rows, scores))
        return Ranking(rows, scores)


def scaled(ranking: Ranking) -> Ranking:
    """Keep :data:`POOL` documents, and scale their scores to z; 0 for a missing document.

    If a query has fewer documents, the score that becomes 0 is 0, or its lowest score if that is
    lower.
    """
    scores: NDArray[np.float64] = ranking.scores[:, :POOL].astype(np.float64)
    missing = ~np.isfinite(scores)
    scores[missing] = 0
    scores = np.where(missing, scores.min(axis=1, keepdims=True), scores)
    low, high = scores[:, -1:], scores[:, :1]
    spread = high - low
    z = np.divide(scores - low, spread, out=np.ones_like(scores), where=spread > 0)
    return Ranking(ranking.doc_rows[:, :POOL], np.where(missing, 0, z).astype(np.float32))
