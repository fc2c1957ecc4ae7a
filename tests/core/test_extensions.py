"""Modules that ``OPERA_EXTENSIONS`` names: each is loaded once, by Python, by every command and by a grid's process."""

import sys
from collections.abc import Callable, Iterator

import pytest

import opera
from opera.core.registry import load_extensions
from opera.experiments.grid import run_job

Write = Callable[..., None]


@pytest.fixture
def write_module(tmp_path, monkeypatch) -> Iterator[Write]:
    """Write modules that the variable names; afterwards they are not loaded."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("OPERA_EXTENSIONS", " , ".join(texts))

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_each_module_is_imported_once(write_module):
    write_module(one_extension="import opera\nload = opera.load_data", other_extension="")
    load_extensions()
    modules = [sys.modules["one_extension"], sys.modules["other_extension"]]
    load_extensions()
    assert [sys.modules["one_extension"], sys.modules["other_extension"]] == modules


def test_a_broken_module_is_named_wherever_extensions_are_loaded(write_module, run_opera):
    write_module(broken_extension="1 / 0")
    message = "OPERA_EXTENSIONS: the module 'broken_extension' cannot be imported: ZeroDivisionError: division by zero"
    with pytest.raises(opera.InputError) as caught:
        _ = opera.load_data
    assert str(caught.value) == message
    assert run_opera("report", status=2).stderr == f"opera: error: {message}\n"
    with pytest.raises(opera.InputError):
        run_job({})
