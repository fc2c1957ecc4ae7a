"""Arguments of the Python functions: what cannot be meant is refused in one line, before anything is written."""

import inspect
from pathlib import Path

import pytest

import opera
from opera.config.arguments import HELP, ModelArguments, ReadingArguments

ARGUMENTS = [
    ("adapt", {"out": None}),
    ("adapt", {"out": 7}),
    ("adapt", {"out": "run", "overwrite": "no"}),
    ("adapt", {"out": "run", "callbacks": [print]}),
    ("search", {"query": 7}),
    ("search", {"query": "x", "top": 1.5}),
    ("search", {"query": "x", "top": True}),
    ("mine", {"keep": None}),
    ("mine", {"seed": "3"}),
    ("score", {"cbs_pool": [1]}),
    ("score", {"relevant_grade": float("nan")}),
    ("inspect", {"show": "3"}),
    ("evaluate", {"model": 7}),
    ("evaluate", {"measures": 7}),
    ("evaluate", {"measures": [7]}),
    ("evaluate", {"max_query_length": []}),
    ("compare", {"out": "grid", "jobs": 1.5}),
    ("compare", {"out": "grid", "methods": 7}),
    ("compare", {"out": "grid", "steps": "12"}),
]
FORGED = "d\udc80\nopera: error: b\x1b[2J"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "arguments"), ARGUMENTS, ids=str)
def test_what_cannot_be_meant_is_refused(name, arguments, here, beir, static_model):
    with pytest.raises(opera.InputError) as caught:
        getattr(opera, name)(beir, **{"model": static_model, **arguments})
    assert str(caught.value).isprintable()
    assert not list(here.iterdir())


@pytest.mark.parametrize("function", [opera.load_data, opera.Run.open, opera.report])
@pytest.mark.parametrize("value", [None, 7, b"data", FORGED], ids=["None", "number", "bytes", "forged"])
def test_what_is_no_path_is_refused_and_forges_no_line(function, value, here):
    with pytest.raises(opera.InputError) as caught:
        function(value)
    assert str(caught.value).isprintable()


DOORS = [opera.evaluate, opera.search, opera.inspect, opera.score, opera.mine, opera.export]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_function_shows_the_arguments_of_its_group(door):
    group = ReadingArguments if door is opera.export else ModelArguments
    shown = inspect.signature(door).parameters
    text = inspect.getdoc(door) or ""
    assert list(shown)[-len(group.__annotations__) :] == list(group.__annotations__)
    assert "arguments" not in shown
    for name in group.__annotations__:
        assert f"    {name}: {HELP[name]}.\n" in text


def test_other_names_are_rejected_before_any_work():
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_lenght'"):
        opera.evaluate("absent", model="absent", max_lenght=3)
