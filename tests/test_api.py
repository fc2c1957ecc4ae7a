"""``opera`` exports one list of names, each of which loads, and nothing else."""

from __future__ import annotations

import inspect

import pytest

import opera
from opera.core import errors


def test_every_public_name_loads_and_says_what_it_is() -> None:
    assert dir(opera) == opera.__all__ == sorted(opera.__all__)
    assert all(getattr(opera, name).__doc__ for name in opera.__all__)
    with pytest.raises(AttributeError, match="module 'opera' has no attribute 'fine_tune'"):
        _ = opera.fine_tune  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["adapt", "evaluate", "score", "mine", "search", "compare", "inspect"])
def test_all_functions_take_data_first_and_the_model_by_keyword(name: str) -> None:
    parameters = inspect.signature(getattr(opera, name)).parameters
    assert next(iter(parameters)) == "data"
    assert parameters["model"].kind is inspect.Parameter.KEYWORD_ONLY


def test_every_error_that_users_may_catch_is_public() -> None:
    raised = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.OperaError)
    }
    assert raised - set(opera.__all__) <= {"MissingExtraError", "OtherFormatError"}
