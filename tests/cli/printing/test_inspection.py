"""The text of ``opera inspect``."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

import opera
from opera.cli.printing.inspection import histogram, print_inspection, seen_sentence


def test_histograms_show_everything_that_is_there() -> None:
    assert histogram([0, 0.001, 0.5, 1], 1) == " ▁▄█"


def test_how_new_the_documents_are() -> None:
    assert seen_sentence("test", 0.95) == (
        "test: train names the document of 95% of the relevant pairs, so it asks new questions about known documents; "
        "fine-tuning is mostly safe."
    )
    assert seen_sentence("test", 0).endswith(
        "of 0% of the relevant pairs, so all documents are new and fine-tuning can make retrieval worse; without a dev "
        "split of your own, opera train draws one like it."
    )
    assert "most documents are new and fine-tuning may not carry over to them;" in seen_sentence("test", 0.41)
    assert seen_sentence("dev", 0.6).endswith("some documents are new and fine-tuning may not carry over to them.")


def test_every_part_is_printed(beir: Path, static_model: Path) -> None:
    seen = opera.inspect(beir, model=static_model, show=2)
    screen = Console(width=140, record=True, file=io.StringIO())
    print_inspection(screen, seen)
    text = screen.export_text()
    for words in (
        "Counts",
        "How new are the documents?",
        "positives per query",
        "queries lost",
        "Near-duplicates",
        "test in train",
        "Advice",
        "--method",
    ):
        assert words in text
    assert text.index("Advice") < text.index("Counts")
    assert "test queries have a near-identical training query" in " ".join(text.split())


def test_data_of_one_pair_without_other_splits(tmp_path: Path, static_model: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"query": "t1w5", "pos": ["t1w1"]}))
    seen = opera.inspect(path, model=static_model)
    assert seen.leaks == seen.seen == {}
    screen = Console(width=140, record=True, file=io.StringIO())
    print_inspection(screen, seen)
    text = screen.export_text()
    assert "no split but train" in text
    assert "too few to estimate noise" in text
