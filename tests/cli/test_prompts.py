"""--query-prompt: commands that use a model put it before each query."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import opera
from commands import Opera

PROMPT = "t3w1 t3w2 t3w1 "


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "--json"],
        ["search", "t1w1 t1w2", "--json"],
        ["score", "--out", "pairs.tsv"],
        ["mine", "--out", "mined.tsv", "--range", "1:3"],
        ["inspect", "--json"],
    ],
    ids=lambda command: command[0],
)
def test_commands_take_prompts(
    command: list[str], run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    name, *rest = command
    results = []
    for prompt in ("", PROMPT):
        done = run_opera(name, beir, *rest, "--model", static_model, "--query-prompt", prompt)
        assert done.returncode == 0, done.stderr
        written = [path.read_text() for path in tmp_path.glob("*.tsv")]
        results.append((done.stdout, written))
        for path in tmp_path.glob("*.tsv"):
            path.unlink()
    assert results[0] != results[1]


def test_the_command_line_and_python_show_the_warning_once(
    run_opera: Opera,
    beir: Path,
    static_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # none of pytest's: what Python shows where none is set up
    e5, bge = (shutil.copytree(static_model, tmp_path / name) for name in ("e5-small", "bge-small-en-v1.5"))
    for _ in range(2):
        opera.search(beir, "t1w1", model=bge)
    warning = "warning: {}: models of the family {} are used with a query prompt (model card of "
    assert capsys.readouterr().err.count(warning.format(bge, "bge-en")) == 1
    assert run_opera("search", beir, "t1w1", "--model", e5).stderr.count(warning.format(e5, "e5")) == 1
