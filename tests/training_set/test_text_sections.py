"""Sections of Markdown and plain texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opera.training_set.corpus_pairs import sections_of

MARKDOWN = """---
title: not a heading
---
# The guide to tea

Tea is made in four steps.

## Which [water](water.md) is `best`

```sh
# no heading
```

Soft water.

### Limits

No limits.

Why does it taste bitter?
-------------------------
It drew for too long.
"""

PLAIN = """Questions that we often hear

Q: How do I reset it?
A: Hold the button for
ten seconds.

What does delivery cost?
Nothing.

Is this a sentence of a paragraph
or a question? It is a paragraph.
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            MARKDOWN,
            [
                ("title", "The guide to tea", "Tea is made in four steps."),
                ("heading", "Which water is best", "```sh\n# no heading\n```\n\nSoft water."),
                ("heading", "Which water is best Limits", "No limits."),
                ("question", "Why does it taste bitter?", "It drew for too long."),
            ],
        ),
        (
            PLAIN,
            [
                ("title", "Questions that we often hear", ""),
                ("question", "How do I reset it?", "Hold the button for\nten seconds."),
                (
                    "question",
                    "What does delivery cost?",
                    "Nothing.\n\nIs this a sentence of a paragraph\nor a question? It is a paragraph.",
                ),
            ],
        ),
        ("- A list?\n\n    In code?\n", []),
        ("no heading here, and nothing else.\n\nAt all.\n", []),
        ("", []),
    ],
)
def test_headings_and_questions(text: str, expected: list[tuple[str, str, str]]) -> None:
    for breaks in ("\n", "\r\n"):
        found = sections_of(text.replace("\n", breaks), "guide.md")
        assert [(own.kind, own.title, "\n".join(own.lines).strip()) for own in found] == expected


@given(text=st.text(st.sampled_from("#-=`~>[]()*_?Q:A. \n\tab1\r\0"), max_size=200))
@settings(max_examples=200)
def test_any_text_has_sections_of_its_own_lines(text: str) -> None:
    for own in sections_of(text, "x"):
        assert "\n" not in own.title
        assert all(line in text.replace("\r\n", "\n") for line in own.lines)
