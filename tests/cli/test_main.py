"""The command line as scripts see it: standard output, messages, exit status."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import typer

from commands import Opera
from opera.cli.options import interruptible

COMMANDS = [
    "train", "evaluate", "score", "mine", "pairs", "search",
    "compare", "report", "inspect", "quickstart",
]  # fmt: skip


def test_version(run_opera: Opera) -> None:
    assert run_opera("--version").stdout.split() == ["opera", version("opera-retrieval")]


def test_help_has_an_example_for_every_command(run_opera: Opera) -> None:
    listing = run_opera("--help").stdout
    for command in COMMANDS:
        assert command in listing
        assert f"Example: opera {command}" in " ".join(run_opera(command, "--help").stdout.split())


@pytest.mark.parametrize("error", [OSError(5, "Input/output error", "/data/corpus.jsonl"), MemoryError()], ids=str)
def test_what_the_machine_refuses_is_one_sentence(
    error: Exception, run_opera: Opera, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("opera.data.load_all", fail)
    done = run_opera("evaluate", "data", "--model", "minilm")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_ctrl_c_prints_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, interruptible(lambda: "start again"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "\nopera: interrupted; start again\n"
