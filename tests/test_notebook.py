"""The notebook runs from its first cell to its last; ``minilm`` is a small model here, so no figure is checked."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tiny_world import write_letter_model

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    model = write_letter_model(tmp_path / "model")
    monkeypatch.setattr("opera.retrieval.locate.minilm_folder", lambda: model)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert len(cells) == 10
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"<{cell['id']}>", "exec"), names)
    first, second = names["first"], names["second"]
    assert second.record.data.notes[-1].split()[0] != "0"
    assert second.measures["base"] == first.measures["base"]
    assert "review.html" in printed.getvalue()
