"""Arguments that several functions share: one declaration, visible in each signature and help."""

import inspect

import pytest

import opera
from opera.config.arguments import HELP, ModelArguments, ReadingArguments

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
