"""Every bad input of the table ends in its one message, and nothing is written."""

import re
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

import opera
from bad_inputs import advice, table
from commands import opera_here
from opera.cli import app
from opera.experiments.compare import prepare_grid
from opera.run_folder.housekeeping import drop_checkpoints
from tiny_world import write_beir

ROWS = table.all_rows()
CONTROL = re.compile(r"(?!\n)[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SETTINGS = {"per_device_train_batch_size": 4, "refit": False}


def shown(value: object) -> str:
    """What a row holds, short enough for the name of a test."""
    text = " ".join(value) if isinstance(value, list) else getattr(value, "pattern", str(value))
    return ascii(text[:60])[1:-1]


@pytest.fixture(scope="session", autouse=True)
def made(tmp_path_factory, static_model) -> Path:
    """A folder with the data, the model, a run and a grid, all of which paths relative to it name."""
    home = tmp_path_factory.mktemp("made")
    write_beir(home / "data", n_docs=40, n_train=12, n_test=6)
    shutil.copytree(static_model, home / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        opera.adapt("data", model="model", out="run", max_steps=4, **SETTINGS)
        for cell in prepare_grid(["data"], Path("grid"), ["model"], SETTINGS, "ft,rp:k=0.5", [0], [4]).runs:
            opera.adapt("data", model="model", out=cell.folder, **cell.values)
            drop_checkpoints(cell.folder)
    table.MADE = home
    return home


@pytest.fixture
def folder(tmp_path, made, monkeypatch) -> Path:
    """A fresh folder with the data and the model, which is where commands run."""
    home = tmp_path / "here"
    for name in ("data", "model"):
        shutil.copytree(made / name, home / name)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.parametrize("row", ROWS, ids=[f"{shown(row.words)}: {shown(row.message)}" for row in ROWS])
def test_a_bad_input_ends_in_one_message_and_writes_nothing(row, folder, monkeypatch, capsys):
    for make in row.make:
        make(folder)
    before = table.snapshot(folder)
    done = opera_here(folder, row.words, monkeypatch, capsys)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not CONTROL.search(done.stderr)
    start, message = done.stderr[:14], done.stderr[14:].removesuffix("\n")
    assert start == "opera: error: ", done.stderr
    assert row.message_fits(message), f"\n{message!r} is not\n{row.message!r}"
    assert done.returncode == 2
    assert table.snapshot(folder) == before


def test_every_option_that_a_message_advises_is_in_the_table():
    paths = {str(path.relative_to(advice.SOURCES)): path for path in advice.SOURCES.rglob("*.py")}
    files = [path for name, path in paths.items() if name not in advice.EXAMPLES]
    assert {option for file in files for option in advice.advised(file)} == advice.ADVISED.keys() | advice.NOT_ADVICE


@pytest.mark.parametrize("option", advice.ADVISED)
def test_the_commands_have_the_options_that_messages_advise(option):
    commands = get_command(app).commands
    for command in advice.ADVISED[option].split():
        options = [name for part in commands[command].params for name in (*part.opts, *part.secondary_opts)]
        assert option in options, f"opera {command}"


@pytest.mark.parametrize("taken", advice.TAKEN, ids=[f"{taken.command} {taken.answer}" for taken in advice.TAKEN])
def test_advice_changes_the_outcome(taken, folder, monkeypatch, capsys):
    for make in taken.make:
        make(folder)
    before = opera_here(folder, taken.command.split(), monkeypatch, capsys)
    assert (before.returncode, taken.option in before.stderr) == (2, True), before.stderr
    after = opera_here(folder, f"{taken.command} {taken.answer}".split(), monkeypatch, capsys)
    assert after.returncode == 0, after.stderr
