"""--query-prompt: commands that use a model put it before each query."""

from __future__ import annotations

from pathlib import Path

import pytest

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
