"""The registry of methods: canonical names, found in any case."""

from __future__ import annotations

from typing import Any

import pytest

from opera.core.errors import SettingError
from opera.methods import METHODS, Method, method_named, register_method
from opera.methods.finetuning import FineTuning


@pytest.mark.parametrize("name", METHODS)
def test_names_are_found_in_any_case(name: str) -> None:
    assert method_named(name.upper()) is method_named(name.title()) is METHODS[name]
    assert METHODS[name].name == name


def test_unknown_names_are_corrected_in_any_case() -> None:
    with pytest.raises(SettingError, match="unknown method 'INFOBACH'; did you mean 'infobatch'"):
        method_named("INFOBACH")


def test_a_name_that_is_taken_is_refused_in_any_case() -> None:
    class Other(FineTuning):
        name = "DP"

    with pytest.raises(ValueError, match="a method named 'dp' is already registered"):
        register_method(Other)
    assert "DP" not in METHODS


def test_registering_the_same_class_again_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def define() -> type[Method[Any]]:
        class Mine(FineTuning):
            name = "mine"

        return Mine

    first = define()
    monkeypatch.setitem(METHODS, "mine", first)
    second = register_method(define())
    assert first is not second
    assert method_named("mine") is second
