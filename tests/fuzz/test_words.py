"""Words: command lines, settings, recipes, labels of grids, measures and paths are read, or refused in a sentence."""

import contextlib
import io
import json
import math
import re
import sys
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from bad_inputs.table import snapshot
from fuzzing import BYTES, VALUES, only_refusals, spoilt, workplace
from opera.cli import COMMANDS as GROUPS
from opera.cli import main
from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.config.yaml import read_recipe
from opera.core.errors import InputError
from opera.methods import METHODS

COMMANDS = [command.__name__ for group in GROUPS.values() for command in group if command.__name__ != "quickstart"]
OPTIONS = [
    "--model", "--out", "--method", "--steps", "--epochs", "--batch-size", "--lr", "--negatives", "--adapter",
    "--query-vectors", "--set", "--config", "--require-gain", "--resume", "--overwrite", "--json", "--split",
    "--measures", "--relevant-grade", "--run-file", "--cbs", "--keep", "--top", "--methods", "--seeds", "--baseline",
    "--jobs", "--plan", "--data", "--show", "-x", "--help", "--", "--lora", "--matryoshka", "--trainer",
]  # fmt: skip
GIVEN = [
    "absent", "file.jsonl", "empty", "", " ", "0", "-1", "nan", "inf", "1e300", "9" * 5000, "1.5", "1:5", "ft,dp",
    "sp:k=0.5", "0,1", "k=0.5", "max_steps=3", "a=[", "=", "~", "~nobody/x", "..", "/dev/null", "x" * 300, "a\0b",
    "\x1b[31m", "\x9b2J", "\u202e", "caf\udce9", "main", "fiqa", "dp", "out.tsv", "file.tsv", "nDCG@10", "python:",
    "r=4,target=;", "256,128", "adam_beta2=x", "nfcorpus=file.jsonl", "python:os.path", "python:../x", "--out=x.tsv",
    "--lr=1", "--set=temperature=.inf",
]  # fmt: skip
WORDS = st.sampled_from([*OPTIONS, *GIVEN]) | st.text(max_size=8)
CONTROL = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=9))
def test_a_command_line_is_done_or_refused_in_a_sentence_without_a_trace(command, words):
    with workplace({"file.jsonl": b"{}\n", "file.tsv": b"mine\n"}) as folder, contextlib.chdir(folder):
        (folder / "empty").mkdir()
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
    with patched, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), error.getvalue()
    return 0, out.getvalue(), error.getvalue()


RECIPE = b"""# a recipe
method: dp
learning_rate: 2e-5
max_steps: 100 # short
negatives: 'hard'
mining_range: 10:50
measures: [nDCG@10, "MRR@10"]
nested:
  - {a: 1, b: null}
  - text: |
      of two
      lines
"""
INDICATORS = [b"a", b": ", b"\n", b"1", b"- ", b"  ", b"'", b"%YAML 1.1\n---\n"]
YAML = st.lists(st.sampled_from([*BYTES, *INDICATORS]), max_size=12)


@given(spoilt(RECIPE) | YAML.map(b"".join))
def test_a_spoilt_recipe_is_read_or_refused(content):
    with workplace({"recipe.yaml": content}) as folder, only_refusals(lambda message: message.startswith("--config ")):
        json.dumps(read_recipe(folder / "recipe.yaml"))


OWN = sorted({name for method in METHODS.values() for name in method.settings_class.model_fields})
NAMES = st.sampled_from([*TrainSettings.model_fields, *OWN, "method", "steps", "lr", "", "fp16", "out", "\x1b[31m"])
GOOD = ["ft", "dp", "sp", "hard", "epoch", "1:5", "true", "0.5", "1e-3", "3", "cbs", "nDCG@10", "none", "auto", "paper"]
HOSTILE = st.sampled_from([*VALUES, *GOOD]) | st.integers() | st.floats() | st.text(max_size=20)


def check_words(error: InputError) -> None:
    """Check that a message has words on each line, and is short; the command line escapes what it holds."""
    assert all(line.strip() and len(line) < 1500 for line in str(error).split("\n"))


@given(st.dictionaries(NAMES, HOSTILE, max_size=5))
def test_settings_are_refused_or_read_back_as_they_were_written(values):
    try:
        flat = make_recipe(values).flat()
    except InputError as error:
        check_words(error)
        return
    assert all(math.isfinite(value) for value in flat.values() if isinstance(value, float))
    json.dumps(flat, allow_nan=False)
    again = {name: value for name, value in flat.items() if value is not None}
    assert make_recipe(again).flat() == flat
