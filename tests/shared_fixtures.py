"""What all tests share: the tiny world as fixtures, the settings of Hypothesis, signals and a cache of their own."""

from __future__ import annotations

import functools
import gc
import os
import runpy
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import typer.main
from hypothesis import settings

from irds_world import irds_home, write_irds
from tiny_world import write_beir, write_bert_model, write_static_model

if TYPE_CHECKING:
    from datasets import Dataset

    from commands import Done, Opera
    from opera.run_folder.folder import Run

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # messages and the order of sums are those of the CPU everywhere
os.environ["OMP_NUM_THREADS"] = "1"  # the models here are tiny; threads would only wait for each other

# The tests see the same processor everywhere; make test-processors names others.
os.environ.setdefault("OPERA_TEST_PROCESSOR", "avx2")
PROCESSORS = Path(__file__).parent / "processors"
if str(PROCESSORS) not in (paths := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROCESSORS), *filter(None, paths)])
    runpy.run_path(str(PROCESSORS / "sitecustomize.py"))

settings.register_profile("opera", deadline=None, derandomize=True)  # the same examples on every machine
settings.register_profile("longer", deadline=None, max_examples=60, derandomize=True)  # make test-slow
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest --hypothesis-profile=explore
settings.register_profile("nightly", deadline=None, max_examples=10_000)  # make fuzz
settings.load_profile("opera")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("OPERA_CACHE", "IR_DATASETS_HOME", "HF_DATASETS_CACHE"):  # read when a library is imported
            monkeypatch.setenv(name, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_waited_for() -> Iterator[None]:
    """Each start of ``opera`` makes typer build all commands, and a run waits for the disk 50 times."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda file: None)
        monkeypatch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def _libraries_are_loaded() -> None:
    """Import the libraries, and drop what importing them leaves."""
    import opera.run.steps  # noqa: F401

    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _nothing_old_is_garbage() -> None:
    """Exempt from garbage collection what earlier tests have loaded: accelerate collects after every training."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _signals_as_on_a_terminal() -> None:
    """A background job or nohup ignores some signals, and so would the processes that tests start and stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def open_page() -> Iterator[Callable[..., Any]]:
    """``open_page(address, width=390)``: open a page in Chromium of the distribution; needs ``pip install playwright``.

    Afterwards no script has failed, and none of the data has opened a dialog.
    """
    browsers = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    failures: list[str] = []
    with browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def open_page(address: str, width: int = 1280) -> Any:
            page = browser.new_context(accept_downloads=True, viewport={"width": width, "height": 844}).new_page()
            page.on("pageerror", lambda error: failures.append(str(error)))
            page.on("dialog", lambda dialog: failures.append("a script of the data ran"))
            page.goto(address)
            return page

        yield open_page
        browser.close()
    assert failures == []


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget afterwards what a test registers."""
    from opera.data import SOURCES
    from opera.methods import METHODS
    from opera.retrieval.kinds import KINDS
    from opera.retrieval.measures import MEASURES
    from opera.training.loss import LOSSES
    from opera.training.negatives import NEGATIVES

    sources = list(SOURCES)
    with ExitStack() as stack:
        for registry in (METHODS, LOSSES, MEASURES, NEGATIVES, KINDS):
            stack.enter_context(patch.dict(registry))
        yield
    SOURCES[:] = sources


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip("the real data is not beside the checkout (../shared/data)")
    return SHARED


@pytest.fixture
def make_beir(tmp_path) -> Callable[..., Path]:
    """Make a fresh BEIR folder that a test may spoil."""
    return lambda **sizes: write_beir(tmp_path / "beir", **sizes)


@pytest.fixture(scope="session")
def beir(tmp_path_factory) -> Path:
    return write_beir(tmp_path_factory.mktemp("data") / "topics")


@pytest.fixture(scope="session")
def second(tmp_path_factory) -> Path:
    """A smaller data set of the same words."""
    return write_beir(tmp_path_factory.mktemp("data") / "second", 60, 20, 4)


@pytest.fixture(scope="session")
def dataset(beir) -> Dataset:
    """Training pairs as a user's script has them."""
    import opera
    from own_scripts import pairs_of

    return pairs_of(opera.load_data(beir))


@pytest.fixture(scope="session")
def irds() -> Path:
    """The paper's eight data sets as ir_datasets finds them on disk, with a few texts each."""
    return write_irds(irds_home())


@pytest.fixture
def run_opera(tmp_path, monkeypatch, capsys) -> Opera:
    """``run_opera("train", ..., status=2)``: run ``opera train ...`` in an empty folder; it ends with 2."""
    from commands import opera_here

    def run(*arguments: object, status: int = 0) -> Done:
        done = opera_here(tmp_path, arguments, monkeypatch, capsys)
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def static_model(tmp_path_factory, _libraries_are_loaded) -> Path:
    """A static embedding model in a sentence-transformers folder, random vectors."""
    return write_static_model(tmp_path_factory.mktemp("static") / "model")


@pytest.fixture(scope="session")
def bert_model(tmp_path_factory, _libraries_are_loaded) -> Path:
    """A two-layer BERT with mean pooling and prompts, random weights, in a sentence-transformers folder."""
    return write_bert_model(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture
def train(tmp_path, beir, static_model) -> Callable[..., Run]:
    """``train("run", **settings)``: train the static model on the small data, into a folder of this name."""
    import opera

    def train(name: str = "run", data: Any = beir, model: Any = static_model, **settings: Any) -> Run:
        return opera.adapt(data, model=model, out=tmp_path / name, **settings)

    return train


@pytest.fixture(scope="session")
def trained(tmp_path_factory, beir, static_model) -> Run:
    """A finished run, which tests may read and not change."""
    import opera
    from small_runs import SMALL

    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("trained") / "run", **SMALL)


@pytest.fixture(scope="session")
def kind_models(tmp_path_factory) -> Path:
    """A folder with tiny models: ``splade``, ``csr``, ``tokens`` (multi-vector), ``mlm`` and ``reranker``."""
    from script_kinds import write_models

    return write_models(tmp_path_factory.mktemp("kinds"))
