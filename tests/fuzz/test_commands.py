"""Command lines of random words: they end with one message, or do what they say; nothing else reaches the terminal."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from bad_inputs.table import snapshot
from fuzzing import workplace
from opera.cli import EXAMPLES, main
from opera.core.errors import DataError

COMMANDS = [command.__name__ for command in EXAMPLES if command.__name__ not in ("theory", "quickstart")]
OPTIONS = [
    "--model", "--out", "--method", "--steps", "--epochs", "--preset", "--batch-size", "--lr", "--seed", "--negatives",
    "--range", "--adapter", "--query-vectors", "--set", "--config", "--require-gain", "--resume", "--overwrite",
    "--json", "--split", "--measures", "--full", "--relevant-grade", "--run-file", "--cbs", "--cbs-pool", "--keep",
    "--top", "--methods", "--seeds", "--baseline", "--jobs", "--plan", "--data", "--table", "--show", "-x",
    "--help", "--version", "--help-settings", "--", "--scale", "--shard", "--table-only",
    "--lora", "--matryoshka", "--trainer",
]  # fmt: skip
VALUES = [
    "absent", "file.jsonl", "pipe", "empty", "", " ", "0", "-1", "nan", "inf", "1e300", "9" * 30, "9" * 5000, "1.5",
    "1:5", "ft,dp", "sp:k=0.5", "0,1", "k=0.5", "max_steps=3", "a=[", "=", "~", "~nobody/x", "..", "/dev/null",
    "x" * 300,
    "a\0b", "\x1b[31m", "\x9b2J", "\u202e", "caf\udce9", "main", "fiqa", "dp", "out.tsv", "file.tsv", "nDCG@10",
    "python:", "r=16", "r=4,target=;", "rank=1", "256,128", "8;4", "adam_beta2=x",
    "small", "1/2", "3/2", "nfcorpus=file.jsonl",
    "python:os.path", "python:../x", "hard", "--out=x.tsv", "--lr=1", "--set=temperature=.inf",
]  # fmt: skip
WORDS = st.sampled_from([*OPTIONS, *VALUES]) | st.text(max_size=8)
CONTROL = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=9))
def test_command_lines(command: str, words: list[str]) -> None:
    with workplace() as folder, contextlib.chdir(folder):
        (folder / "empty").mkdir()
        (folder / "file.jsonl").write_text("{}\n")
        (folder / "file.tsv").write_text("mine\n")
        before = snapshot(folder)
        status, out, error = run([command, *words])
        assert status in (0, 2), (out, error)
        assert not CONTROL.search(out + error)
        if status == 2:
            assert out == ""
            assert error.startswith("opera: error: ")
            assert error.count("opera: error: ") == 1
        assert {name: place for name, place in snapshot(folder).items() if not name.startswith("cache")} == before


def run(words: list[str]) -> tuple[int, str, str]:
    """Run ``opera WORDS`` in this process; return its exit status and what it printed."""
    out, error = io.StringIO(), io.StringIO()
    patched = mock.patch.object(sys, "argv", ["opera", *words])
    fetching = mock.patch("opera.experiments.paper.reproduce.load_data", side_effect=DataError("fetches nothing here"))
    with patched, fetching, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), error.getvalue()
    return 0, out.getvalue(), error.getvalue()
