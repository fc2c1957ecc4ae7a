"""What users extend: shipped names first, found in any case, never replaced; each module is loaded once."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import opera
from opera.config.negatives import NEGATIVES
from opera.config.optimisation import LOSSES
from opera.core.registry import Registry, load_extensions
from opera.experiments.grid import run_job
from opera.methods import METHODS
from opera.retrieval.measures import MEASURES
from opera.training.loss import InfoNCELoss
from opera.training.negatives import RandomNegatives


@pytest.fixture
def registry() -> Registry[Any]:
    registry = Registry("thing", shipped=("one",))
    registry.register("two", RandomNegatives)
    return registry


@pytest.mark.parametrize("name", ["one", "ONE", "two"])
def test_a_name_is_never_given_to_another_thing(name, registry):
    with pytest.raises(ValueError, match="is already registered"):
        registry.register(name, InfoNCELoss)
    assert registry.register("two", RandomNegatives) is RandomNegatives


def test_every_shipped_name_has_its_thing():
    for registry in (METHODS, NEGATIVES, LOSSES, MEASURES):
        assert set(registry.names) == set(registry)


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
