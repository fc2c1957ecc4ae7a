"""The command line as scripts see it: output that does not control the terminal, messages, exit status."""

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from commands import QUICK
from doors import DOORS
from opera.cli.options import interruptible


def test_the_version_is_that_of_the_package(run_opera):
    assert run_opera("--version").stdout.split() == ["opera", version("opera-retrieval")]


def test_help_has_an_example_for_every_command(run_opera):
    listing = run_opera("--help").stdout
    for command in DOORS:
        assert command in listing
        assert f"Example: opera {command}" in " ".join(run_opera(command, "--help").stdout.split())


@pytest.mark.parametrize("error", [OSError(5, "Input/output error", "/data/corpus.jsonl"), MemoryError()], ids=str)
def test_what_the_machine_refuses_is_one_sentence(error, run_opera, monkeypatch):
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("opera.data.load_all", fail)
    done = run_opera("evaluate", "data", "--model", "minilm", status=1)
    assert done.stderr.count("\n") == 1


def test_ctrl_c_prints_how_to_continue(capsys):
    with pytest.raises(typer.Exit) as ended, interruptible(lambda: "start again"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "\nopera: interrupted; start again\n"


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
