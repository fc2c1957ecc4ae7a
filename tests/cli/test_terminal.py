"""Ids, texts, and names of files, data and models are printed, and none of them is a command to the terminal."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from commands import QUICK, Opera
from opera.core.terminal import printable

EVIL = "\x1b[31m\x9b2J\u202e\x07\x7f"
IN_ID = "\u202e\u2066"  # other control characters are refused in ids
CONTROL = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def evil_data(tmp_path_factory: pytest.TempPathFactory, beir: Path) -> Path:
    """Data whose folder, ids and texts hold control characters."""
    folder = Path(shutil.copytree(beir, tmp_path_factory.mktemp("evil") / f"da{EVIL}ta"))
    for name in ("corpus.jsonl", "queries.jsonl"):
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        spoilt = [{**row, "_id": row["_id"] + IN_ID, "text": row["text"] + EVIL} for row in rows]
        (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in spoilt))
    for path in (folder / "qrels").iterdir():
        header, *lines = path.read_text().splitlines()
        parts = [line.split("\t") for line in lines]
        spoilt_lines = [f"{query}{IN_ID}\t{doc}{IN_ID}\t{grade}" for query, doc, grade in parts]
        path.write_text("\n".join([header, *spoilt_lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def evil_model(tmp_path_factory: pytest.TempPathFactory, static_model: Path) -> Path:
    return Path(shutil.copytree(static_model, tmp_path_factory.mktemp("evil") / f"mo{EVIL}del"))


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "DATA", "--json"],
        ["search", "DATA", f"t1w2 {EVIL}"],
        ["inspect", "DATA"],
        ["score", "DATA", "--out", f"s{EVIL}.tsv"],
        ["evaluate", "DATA", "--split", EVIL],
        ["score", "DATA", "--out", f"s{EVIL}.csv"],
    ],
    ids=lambda words: f"{words[0]} {words[-1][:6]}" if words[-1].startswith("--") else words[0],
)
def test_nothing_that_is_printed_commands_the_terminal(
    run_opera: Opera, evil_data: Path, evil_model: Path, words: list[str]
) -> None:
    given = [str(evil_data) if word == "DATA" else word for word in words]
    done = run_opera(*given, "--model", evil_model)
    assert done.returncode == (2 if words[-1].endswith(".csv") or words[-1] == EVIL else 0), done.stderr
    assert not CONTROL.search(done.stdout)
    assert not CONTROL.search(done.stderr)
    assert "x1b" in done.stdout + done.stderr or "u001b" in done.stdout or "--json" in words
    if "--json" in words:
        json.loads(done.stdout)


def test_a_run_and_its_report_are_told_without_commands(run_opera: Opera, evil_data: Path, evil_model: Path) -> None:
    out = f"r{EVIL}"
    for words in (
        ["train", evil_data, "--model", evil_model, "--out", out, *QUICK],
        ["train", evil_data, "--model", evil_model, "--out", out, *QUICK, "--resume"],
        ["report", out],
        ["report", out, "--json"],
    ):
        done = run_opera(*words)
        assert done.returncode == 0, done.stderr
        assert not CONTROL.search(done.stdout + done.stderr)
    assert printable(out) in run_opera("report", out).stdout


def test_a_traceback_holds_no_commands(run_opera: Opera, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError(EVIL)

    monkeypatch.setattr("opera.cli.load_extensions", fail)
    done = run_opera("report", "absent")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith(f"ValueError: {printable(EVIL)}\n")
