"""``opera`` exports one list of names, each of which loads, and nothing else."""

import inspect
import shutil

import pytest

import opera
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
