"""The examples in the docstrings of public names run; ``minilm`` is a small model here."""

import doctest
import importlib
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opera
import opera.methods
from opera.data import register_source
from opera.retrieval.measures import register_measure
from opera.training.loss import register_loss
from opera.training.negatives import register_negatives
from tiny_world import write_letter_model

METHODS = [getattr(opera.methods, name) for name in opera.methods.__all__]
PUBLIC = [
    *(getattr(opera, name) for name in dir(opera)),
    *(thing for thing in METHODS if inspect.isclass(thing) or inspect.isfunction(thing)),
    *(register_source, register_loss, register_measure, register_negatives),
]


def run_example(thing: Any) -> None:
    """Run the example in a docstring, and check its output."""
    names = {**vars(opera.methods), **vars(importlib.import_module(thing.__module__)), "opera": opera}
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", names, thing.__name__, None, None)
    assert examples.examples, f"{thing.__name__} has no example"
    report = []
    doctest.DocTestRunner().run(examples, out=report.append)
    assert not report, "".join(report)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """A folder in which ``minilm`` is a small model, with the run that the example of ``adapt`` trains."""
    home = tmp_path_factory.mktemp("examples")
    model = write_letter_model(home / "all-MiniLM-L6-v2")
    shutil.copytree(model, home / "sentence-transformers" / model.name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("opera.retrieval.locate.minilm_folder", lambda: model)
        monkeypatch.chdir(home)
        run_example(opera.adapt)  # trains my-run
        yield home


def with_mark(thing: Any) -> Any:
    marks = [pytest.mark.slow] if thing is opera.compare else []
    return pytest.param(thing, id=thing.__name__, marks=marks)


@pytest.mark.parametrize("thing", [*map(with_mark, PUBLIC)])
def test_the_example_of_each_public_name_runs(thing, folder, registries):
    if thing is not opera.adapt:  # it has run in the folder
        run_example(thing)
