"""Modules that ``OPERA_EXTENSIONS`` names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import opera
from opera.cli import main
from opera.core.errors import InputError
from opera.core.registry import load_extensions
from opera.experiments.grid.cell import run_job

Write = Callable[..., None]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules that the variable names; afterwards they are not loaded."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("OPERA_EXTENSIONS", " , ".join(texts))

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_each_module_is_imported_once(write_module: Write) -> None:
    write_module(one_extension="import opera\nload = opera.load_data", other_extension="")
    load_extensions()
    modules = [sys.modules["one_extension"], sys.modules["other_extension"]]
    load_extensions()
    assert [sys.modules["one_extension"], sys.modules["other_extension"]] == modules


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('taken')", "ValueError: taken"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(text: str, reason: str, write_module: Write) -> None:
    write_module(broken_extension=text)
    for _ in range(2):
        with pytest.raises(InputError, match="OPERA_EXTENSIONS: the module 'broken_extension' cannot be imp") as caught:
            load_extensions()
        assert reason in str(caught.value)


def test_ctrl_c_while_one_is_imported(
    write_module: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(slow_extension="raise KeyboardInterrupt")
    monkeypatch.setattr(sys, "argv", ["opera", "report"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "\nopera: interrupted\n"


class TestWhereTheyAreLoaded:
    """In Python, by every command, and in the processes of a grid."""

    @pytest.fixture(autouse=True)
    def _broken(self, write_module: Write) -> None:
        write_module(broken_extension="1 / 0")

    def test_by_every_public_function_and_no_exception(self) -> None:
        with pytest.raises(opera.InputError, match="broken_extension"):
            _ = opera.load_data

    def test_by_every_command(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["opera", "report"])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        assert "opera: error: OPERA_EXTENSIONS: the module 'broken_extension'" in capsys.readouterr().err

    def test_by_a_grids_cell_which_reports_the_reason(self) -> None:
        message = run_job({})
        assert "ZeroDivisionError: division by zero" in message["failed"]
