"""``opera`` exports one list of names, each of which loads; arguments that cannot be meant are refused in one line."""

import inspect
import shutil
from pathlib import Path

import pytest

import opera
from opera.config.arguments import HELP, ModelArguments, ReadingArguments
from opera.core import errors


def test_every_public_name_loads_and_says_what_it_is():
    assert dir(opera) == opera.__all__ == sorted(opera.__all__)
    assert all(getattr(opera, name).__doc__ for name in opera.__all__)
    with pytest.raises(AttributeError, match="module 'opera' has no attribute 'fine_tune'"):
        _ = opera.fine_tune


@pytest.mark.parametrize("name", ["adapt", "evaluate", "score", "mine", "search", "compare", "inspect"])
def test_all_functions_take_data_first_and_the_model_by_keyword(name):
    parameters = inspect.signature(getattr(opera, name)).parameters
    assert next(iter(parameters)) == "data"
    assert parameters["model"].kind is inspect.Parameter.KEYWORD_ONLY


def test_every_error_that_users_may_catch_is_public():
    raised = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.OperaError)
    }
    assert raised - set(opera.__all__) <= {"MissingExtraError"}


def test_a_tilde_is_the_home_folder_everywhere(tmp_path, monkeypatch, beir, static_model):
    home = tmp_path / "home"
    shutil.copytree(beir, home / "data")
    shutil.copytree(static_model, home / "model")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    run = opera.adapt("~/data", model="~/model", out="~/run", max_steps=2, guard=False, relevant_grade=2)
    assert run.path == home / "run" == opera.Run.open("~/run").path
    measured = opera.evaluate("~/data", model="~/run")
    assert measured.measures["nDCG@10"] == run.measures["final"]["nDCG@10"]  # the run's own relevant grade
    assert opera.search("~/data", "t1w1", model="~/run", top=1)
    assert opera.inspect("~/data", model="~/run").source == str(home / "data")
    opera.score("~/data", model="~/run", out="~/pairs.tsv")
    opera.mine("~/data", model="~/run", out="~/mined.tsv", range=(1, 5))
    assert opera.report("~/run") == home / "run" / "report.html"
    assert opera.report("~/run", "~/page.html") == home / "page.html"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


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
