"""How long texts are, and how much of them a model reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.encoder import PLURALS, Encoder
from opera.retrieval.kinds.dense import is_static
from opera.retrieval.passages import advised_passage, uncut_tokenizer
from opera.retrieval.prompts import Role, length_limit

SAMPLE = 1000
"""Texts whose tokens are counted."""
LITTLE_LOST = 0.01
"""If a smaller fraction of the tokens is lost, OPERA gives no advice."""
LONG, MANY_LONG = 512, 0.1
"""Tokens of a long document, and the fraction of long documents from which OPERA advises passages
to a model that reads whole documents. A choice between two measurements: 355 tokens gain little,
whole modules gain much (docs/long-documents.md)."""
PASSAGE = 200
"""The tokens of a passage in the measurements."""


@dataclass(frozen=True)
class TextLengths:
    """Lengths of texts in tokens, with the prompt and special tokens, from a random sample.

    Attributes:
        role: ``query`` or ``document``.
        checked: the number of texts in the sample.
        median: the median length.
        longest: the length of the longest text.
        limit: how many tokens the model reads; ``None`` for no limit.
        own_limit: how many tokens the model could read; ``None`` for no limit.
        cut: the fraction of texts that are longer than the limit.
        lost: the fraction of all tokens that lie beyond the limit.
        long: the fraction of texts of more than :data:`LONG` tokens.
        passages: the most tokens of a passage; ``None`` if documents stay whole.
        may_split: whether ``--passages`` would help.
    """

    role: Role
    checked: int
    median: int
    longest: int
    limit: int | None
    own_limit: int | None
    cut: float
    lost: float
    long: float
    passages: int | None
    may_split: bool

    @property
    def sentence(self) -> str:
        """Say how long the texts are and how much is cut, without the full stop."""
        texts = "passages" if self.passages else PLURALS[self.role]
        start = f"{texts}: {self.median:,} tokens (median), at most {self.longest:,}"
        if self.limit is None or not self.cut:
            return f"{start}; the model reads them whole"
        cut = round(self.cut * self.checked)
        return (
            f"{start}; {cut:,} of {self.checked:,} are longer than the {self.limit:,} tokens that "
            f"the model reads, and {self.lost:.0%} of all tokens are lost"
        )

    @property
    def advice(self) -> str | None:
        """Say how to lose less; ``None`` if almost nothing is lost."""
        if self.limit is None:
            if not (self.may_split and self.long >= MANY_LONG):
                return None
            return f"--passages {PASSAGE} finds long documents better, by their best passage"
        if self.lost < LITTLE_LOST:
            return None
        setting = "max_query_length" if self.role == "query" else "max_passage_length"
        if self.own_limit is None or self.limit < self.own_limit:
            most = self.longest if self.own_limit is None else min(self.longest, self.own_limit)
            return f"--set {setting}={most} reads more of them, and takes longer"
        if self.may_split:
            return f"--passages {min(PASSAGE, advised_passage(self.limit))} reads all of them"
        return "use shorter texts, or a model that reads more"


def text_lengths(
    encoder: Encoder,
    data: RetrievalData,
    role: Role,
    limit: int | None,
    corpus_text: CorpusText = "title_text",
    seed: int = 0,
    may_split: bool = True,
) -> TextLengths | None:
    """Count the tokens of a sample of a data set's queries or documents.

    Args:
        encoder: the model, with its prompts and lengths.
        data: the data set.
        role: which texts.
        limit: how many tokens a training reads at most; ``None``: as the model's folder says.
        corpus_text: fields of a document to read.
        seed: of the sample.
        may_split: whether the model can read passages of documents.

    Returns:
        The lengths; ``None`` if the model's tokenizer cannot count tokens without cutting texts.
    """
    uncut = uncut_tokenizer(encoder.model)
    passages = encoder.passages(data) if role == "document" else None
    table = data.queries if role == "query" else data.corpus
    table = table if passages is None else passages.table
    if not len(table) or uncut is None:
        return None
    rows = np.sort(generator(seed, "lengths").permutation(len(table))[:SAMPLE])
    prompt = encoder.prompts[role]
    texts = [f"{prompt}{text}" for text in table.texts(rows, corpus_text)]
    encodings = uncut.encode_batch_fast(texts, add_special_tokens=not is_static(encoder.model))
    lengths = np.array([len(encoding.ids) for encoding in encodings])
    cuts = hasattr(encoder.model[0], "query_length")
    own_limit = length_limit(encoder.model, role) if cuts else None
    limits = [number for number in (limit, own_limit) if number is not None and cuts]
    read = min(limits, default=None)
    return TextLengths(
        role=role,
        checked=len(lengths),
        median=int(np.median(lengths)),
        longest=int(lengths.max()),
        limit=read,
        own_limit=own_limit,
        cut=0.0 if read is None else float((lengths > read).mean()),
        lost=0.0
        if read is None
        else float(np.maximum(lengths - read, 0).sum() / max(1, lengths.sum())),
        long=float((lengths > LONG).mean()),
        passages=None if passages is None else encoder.passage_tokens,
        may_split=may_split and role == "document" and passages is None,
    )
