"""The command line as scripts see it: standard output, messages, exit status."""

from importlib.metadata import version

import pytest
import typer

from doors import DOORS
from opera.cli.options import interruptible


def test_version(run_opera):
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
