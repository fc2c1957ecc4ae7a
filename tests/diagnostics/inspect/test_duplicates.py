"""Near-duplicates."""

from __future__ import annotations

import numpy as np

from opera.data import TextTable
from opera.diagnostics.inspect.duplicates import count_duplicates, word_overlap, words_of


def test_word_overlap() -> None:
    assert word_overlap(words_of("The cat, the mat"), words_of("the CAT mat")) == 1
    assert word_overlap(words_of("a b c d"), words_of("a b c e")) == 3 / 5
    assert word_overlap(words_of("!"), words_of("?")) == 0


def test_texts_that_are_empty_are_no_copies_of_each_other() -> None:
    table = TextTable.from_texts({"a": "one two", "b": "", "c": " ", "d": "One  two", "e": ""})
    found = count_duplicates(table, np.eye(5, dtype=np.float32), seed=0, max_examples=3)
    assert (found.total, found.copies, found.near_duplicates) == (5, 1, 2)
