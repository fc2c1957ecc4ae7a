"""Ids, texts, and names of files, data and models are printed, and none of them is a command to the terminal."""

import json
import re
import shutil
from pathlib import Path

import pytest

from commands import QUICK

EVIL = "\x1b[31m\x9b2J\u202e\x07\x7f"
IN_ID = "\u202e\u2066"  # other control characters are refused in ids
CONTROL = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def evil_data(tmp_path_factory, beir) -> Path:
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


def test_nothing_that_is_printed_commands_the_terminal(run_opera, evil_data, static_model):
    model, out = shutil.copytree(static_model, evil_data.with_name(f"mo{EVIL}del")), f"r{EVIL}"
    commands = [
        (["evaluate", evil_data, "--model", model, "--json"], 0),
        (["search", evil_data, f"t1w2 {EVIL}", "--model", model], 0),
        (["inspect", evil_data, "--model", model], 0),
        (["evaluate", evil_data, "--model", model, "--split", EVIL], 2),
        (["train", evil_data, "--model", model, "--out", out, *QUICK], 0),
        (["report", out], 0),
        (["report", out, "--json"], 0),
    ]
    for words, status in commands:
        done = run_opera(*words, status=status)
        assert not CONTROL.search(done.stdout + done.stderr)
