"""Exit statuses, and the name that a typing mistake stands for."""

import pytest

from opera.core import errors
from opera.core.errors import InputError, OperaError, SettingError, StorageError, TrainingError, nearest

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OperaError)]


def test_wrong_input_exits_with_2_and_failed_training_with_1():
    status = {kind: kind.exit_status for kind in KINDS}
    assert {kind for kind, number in status.items() if number == 1} == {OperaError, StorageError, TrainingError}
    assert all(issubclass(kind, InputError) for kind, number in status.items() if number == 2)


@pytest.mark.parametrize(("name", "hint"), [("temprature", "; did you mean 'temperature'?"), ("xyz", ""), ("", "")])
def test_the_nearest_name_is_suggested_if_it_is_near(name, hint):
    assert nearest(name, ["temperature", "range", "seed"]) == hint


def test_an_error_has_a_line_for_each_mistake_and_no_other():
    error = SettingError("one\ntwo", "three")
    assert error.lines == ("one\\ntwo", "three")
    assert str(error) == "one\\ntwo\nthree"
