"""``opera.pairs``: sections of texts, and a table of weak pairs that ``opera train`` reads."""

import pytest

import opera
from opera.training.corpus_pairs import sections_of
from tiny_world import write_table

LONG = "The text below is long enough to be a chunk of its own, about {}."
DOCUMENTS = [
    {"id": "007", "title": "How do I reset it?", "text": "How do I reset it? " + LONG.format("resets")},
    {"id": "8", "title": "The price of delivery", "text": 'quotes "here",\nand lines'},
    {"id": "9", "title": "Imprint", "text": LONG.format("words")},
    {"id": "10", "title": "Nothing but a title", "text": " "},
    {"id": "11", "title": "Twice the same title", "text": LONG.format("one")},
    {"id": "12", "title": "twice the  same title", "text": LONG.format("two")},
    {"id": "13", "title": "", "text": LONG.format("none")},
]


@pytest.mark.parametrize("name", ["docs.csv", "docs.parquet", "beir/corpus.jsonl"])
@pytest.mark.parametrize("out", ["weak.csv", "weak.parquet", "weak.jsonl"])
def test_titles_and_bodies_train_by_texts_and_by_ids(name, out, tmp_path, caplog):
    corpus, weak = write_table(tmp_path / name, DOCUMENTS), tmp_path / out
    (corpus.parent / "README.md").write_text(f"# The data of this folder\n\n{LONG}\n")
    with caplog.at_level("INFO", logger="opera"):
        table = opera.pairs(corpus.parent if corpus.suffix == ".jsonl" else corpus, out=weak)
    assert table.to_pylist() == [
        {"query": "How do I reset it?", "document_id": "007", "document": LONG.format("resets"), "origin": "question"},
        {"query": "The price of delivery", "document_id": "8", "document": 'quotes "here",\nand lines',
         "origin": "title"},
    ]  # fmt: skip
    left_out = "titles left out: 1 of fewer than 3 words, 1 without a text, 2 of several texts"
    assert left_out in caplog.text
    assert "left out 1 of 7 texts without a title; the first is 13" in caplog.text
    alone, beside = opera.load_data(weak), opera.load_data(pairs=weak, documents=corpus)
    for data, documents in ((alone, 2), (beside, 7)):
        assert data.counts() == {"documents": documents, "train_queries": 2, "train_pairs": 2}
        relevant = data.training_split()
        assert data.corpus.ids(relevant.doc_rows) == ["007", "8"]
        assert data.queries.texts(relevant.query_rows) == ["How do I reset it?", "The price of delivery"]


def test_a_folder_gives_pairs_of_its_texts_without_hidden_files(tmp_path):
    home = tmp_path / "docs"
    (home / "deep").mkdir(parents=True)
    (home / ".hidden").mkdir()
    (home / "a.md").write_text(f"# Reset of the box\n\n{LONG.format('a')}\n\n{LONG.format('b') * 9}\n")
    (home / "deep" / "b.txt").write_text(f"What does it cost?\n{LONG.format('money')}\n")
    (home / ".hidden" / "c.md").write_text(f"# Never to be read\n\n{LONG.format('c')}\n")
    table = opera.pairs(home, out=tmp_path / "weak.csv")
    assert table.column_names == ["query", "document", "origin"]
    pairs = [(row["query"], row["origin"]) for row in table.to_pylist()]
    assert pairs == [("Reset of the box", "title")] * 2 + [("What does it cost?", "question")]
    assert opera.load_data(tmp_path / "weak.csv").counts()["train_pairs"] == 3


def test_bad_rows_are_refused_or_left_out_and_counted(tmp_path, caplog):
    path, body = tmp_path / "docs.csv", LONG.replace(",", "")
    path.write_text(f"nr,title,text\n1,How does it go,{body}\n2,too many,{body},x\n,Without an id,{body}\n")
    with pytest.raises(opera.DataError, match=r"docs\.csv:3: must have 3 columns"):
        opera.pairs(path, columns={"id": "nr"})
    with caplog.at_level("INFO", logger="opera"):
        table = opera.pairs(path, skip_bad_rows=True, columns={"id": "nr"})
    assert table["document_id"].to_pylist() == ["1"]
    assert "left out 2 of 3 rows" in caplog.text


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
    ],
)
def test_a_text_is_cut_at_its_headings_and_questions(text, expected):
    for breaks in ("\n", "\r\n"):
        sections = sections_of(text.replace("\n", breaks), "guide.md")
        assert [(section.kind, section.title, "\n".join(section.lines).strip()) for section in sections] == expected
