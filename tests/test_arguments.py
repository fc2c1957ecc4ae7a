"""Arguments of the Python functions: what cannot be meant is refused in one line, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.core.errors import OperaError, SettingError

NO_PATHS = (None, 7, b"data", ["data"], {}, True, print, np.zeros(2))
NO_COUNTS = (1.5, None, True, "3", float("nan"), [1])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beir: Path, static_model: Path) -> Path:
    """An empty folder to run in, beside which the data and the model lie."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def refused(function: Any, *given: Any, **named: Any) -> str:
    """Return the one line by which a function refuses its arguments."""
    with pytest.raises(opera.InputError) as caught:
        function(*given, **named)
    message = str(caught.value)
    assert "\n" not in message
    assert "\0" not in message
    assert list(Path().iterdir()) == []
    return message


@pytest.mark.parametrize("value", NO_PATHS, ids=repr)
def test_what_is_no_path_is_no_path_anywhere(here: Path, beir: Path, static_model: Path, value: Any) -> None:
    assert refused(opera.adapt, beir, model=static_model, out=value).startswith("--out: must be a path, got ")
    assert refused(opera.Run.open, value).startswith("run: must be a path, got ")
    in_memory = isinstance(value, list | dict | np.ndarray)  # which may be a table of pairs
    expected = "pairs" if in_memory else ("data: must be a path, got ", "DATA: is missing; give ")
    assert refused(opera.load_data, value).startswith(expected)
    assert refused(opera.evaluate, beir, model=value).startswith(("model: must be a path, got ", "--model: is missing"))
    assert refused(opera.report, value).startswith("folder: must be a path, got ")


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_whole_number_is_none_anywhere(here: Path, beir: Path, static_model: Path, value: Any) -> None:
    given: dict[str, Any] = {"model": static_model}
    calls = [
        (opera.search, "top", {"query": "x"}),
        (opera.mine, "keep", {}),
        (opera.mine, "seed", {}),
        (opera.score, "cbs_pool", {}),
        (opera.score, "relevant_grade", {}),
        (opera.inspect, "show", {}),
        (opera.compare, "jobs", {"out": "grid"}),
    ]
    for function, name, more in calls:
        message = refused(function, beir, **given, **more, **{name: value})
        assert message.removeprefix("--").startswith(f"{name}: must be a whole number, got ")


def test_other_arguments_that_cannot_be_meant(here: Path, beir: Path, static_model: Path) -> None:
    given: dict[str, Any] = {"model": static_model}
    for query in (None, 7, ["a"]):
        assert refused(opera.search, beir, query, **given).startswith("query: must be text, got ")
    assert refused(opera.evaluate, beir, **given, measures=[7]) == "measures: must be text, got 7"
    assert refused(opera.evaluate, beir, **given, measures=7) == "measures: must be a list of texts, got 7"
    assert refused(opera.evaluate, beir, **given, relevant_grade="1").startswith("relevant_grade: must be a whole")
    assert refused(opera.evaluate, beir, **given, max_query_length=[]).startswith("max_query_length: must be a whole")
    for gains in ("{1:1e308}", "{'a':1}", "{1:{}}"):
        message = refused(opera.evaluate, beir, **given, measures=[f"nDCG(gains={gains})@5"])
        assert message.endswith("gains must map whole numbers to whole numbers")
    for name, value in {"methods": 7, "seeds": 7, "steps": "12", "baseline": 7}.items():
        assert refused(opera.compare, beir, **given, out="grid", **{name: value}).startswith(f"{name}: must be ")
    assert refused(opera.adapt, beir, **given, out="run", overwrite="no").startswith("overwrite: must be True or False")
    for callbacks in ([7], [print], 7, [int], "x"):
        assert refused(opera.adapt, beir, **given, out="run", callbacks=callbacks).startswith("callbacks: must be ")


@pytest.mark.parametrize("value", ["a\0b", "d\udc80", "a\nopera: error: b", "\x1b[2J"])
def test_no_value_forges_a_line_or_reaches_a_terminal_raw(
    here: Path, beir: Path, static_model: Path, value: str
) -> None:
    messages = [
        refused(opera.Run.open, value),
        refused(opera.load_data, value),
        refused(opera.adapt, beir, model=static_model, out="run", method=f"ft{value}"),
        refused(opera.evaluate, beir, model=static_model, split=value),
    ]
    assert all(message.isprintable() for message in messages)


def test_an_error_has_a_line_for_each_mistake_and_no_other() -> None:
    error = SettingError("one\ntwo", "three")
    assert error.lines == ("one\\ntwo", "three")
    assert str(error) == "one\\ntwo\nthree"
    assert str(OperaError(error)) == str(SettingError(*error.lines)).replace("\n", "\\n")
