"""The guides: every code block runs as a reader would run it; ``minilm`` is a small model here.

Blocks that need a network, a GPU or several machines say so in a comment above them; see ``guides.py``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import opera_here
from guides import Block, blocks_of, run_page
from tiny_world import write_letter_model

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = (
    "start.md",
    "coming-from-sentence-transformers.md",
    "coming-from-flagembedding.md",
    "errors.md",
)
LONGER = ("data.md", "training.md", "report.md", "deploy.md")
"""Guides whose blocks run where the slow tests do, CI among them."""
NEEDS = {
    "coming-from-sentence-transformers.md": ("peft",),
    "deploy.md": ("faiss", "qdrant_client", "onnx", "onnxscript", "onnxruntime"),
}
"""Packages that the blocks of a guide import; it is skipped where one is absent."""
REASONS = (
    "needs a network",
    "needs several GPUs",
    "needs a package index",
    "needs docker",
    "takes minutes",
    "takes hours",
)
"""Why a block may be left out."""


@pytest.fixture(scope="session")
def letter_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_letter_model(tmp_path_factory.mktemp("minilm") / "model")


@pytest.fixture
def folder(tmp_path: Path, letter_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, where ``minilm`` is a small model, and so is the folder of its full name."""
    import opera.retrieval.locate

    monkeypatch.setattr(opera.retrieval.locate, "minilm_folder", lambda: letter_model)
    shutil.copytree(letter_model, tmp_path / "all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")  # the trainer's default, without a GPU
@pytest.mark.parametrize("page", [*GUIDES, *(pytest.param(page, marks=pytest.mark.slow) for page in LONGER)])
def test_the_blocks_of_a_guide_run(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        run_page(DOCS / page, folder, lambda words: opera_here(folder, words, monkeypatch, capsys), names)
    finally:
        os.chdir(DOCS)


@pytest.mark.parametrize("page", [*GUIDES, *LONGER])
def test_a_block_that_is_not_run_says_why(page: str) -> None:
    for block in blocks_of(DOCS / page):
        assert not block.reason or block.reason.startswith(REASONS), f"{block.place}: {block.reason}"


def test_every_block_of_a_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# A page\n\n```csv title="a.csv"\nx\n```\n\n<!-- not run: needs a network -->\n```bash\nopera data\n```\n\n'
        '=== "Python"\n\n    ```python\n    a = 1\n    if a:\n        b = 2\n    ```\n',
        encoding="utf-8",
    )
    assert blocks_of(page) == [
        Block("page.md", 3, "csv", "a.csv", "x\n", ""),
        Block("page.md", 8, "bash", "", "opera data\n", "needs a network"),
        Block("page.md", 14, "python", "", "a = 1\nif a:\n    b = 2\n", ""),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```bash\nopera data --nonsense\n```\n", "nonsense"),
        ("```console\n$ opera --version\nnothing like it\n```\n", "not printed"),
        ("<!-- not run: needs a network -->\n```bash\nopera data --nonsense\n```\n", "nonsense"),
        ("```bash\nrm -r .\n```\n", "not run here"),
    ],
    ids=["python", "bash", "console", "not run", "shell"],
)
def test_a_block_that_fails_fails_the_test(
    text: str, problem: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError) as failure:
        run_page(page, folder, lambda words: opera_here(folder, words, monkeypatch, capsys), {})
    assert problem in f"{type(failure.value).__name__}: {failure.value}"
