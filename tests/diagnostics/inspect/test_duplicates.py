"""Near-duplicates."""

from __future__ import annotations

from opera.diagnostics.inspect.duplicates import word_overlap, words_of


def test_word_overlap() -> None:
    assert word_overlap(words_of("The cat, the mat"), words_of("the CAT mat")) == 1
    assert word_overlap(words_of("a b c d"), words_of("a b c e")) == 3 / 5
    assert word_overlap(words_of("!"), words_of("?")) == 0
