"""What all tests share: the tiny world as fixtures, the settings of Hypothesis, signals and a cache of their own."""

from __future__ import annotations

import functools
import gc
import os
import runpy
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import typer.main
from hypothesis import settings

from irds_world import irds_home, write_irds
from tiny_world import write_beir, write_bert_model, write_static_model

if TYPE_CHECKING:
    from commands import Opera
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
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest --hypothesis-profile=explore
settings.register_profile("nightly", deadline=None, max_examples=10_000)  # make fuzz
settings.load_profile("opera")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("OPERA_CACHE", "IR_DATASETS_HOME", "HF_DATASETS_CACHE"):  # read when a library is imported
            monkeypatch.setenv(name, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _commands_are_built_once() -> Iterator[None]:
    """Each start of ``opera`` makes typer build all commands: 40 ms, of which a test needs none."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session")
def _libraries_are_not_garbage() -> None:
    """Import the libraries and exempt them from garbage collection: accelerate collects after every training."""
    import opera.run.steps  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _signals_as_on_a_terminal() -> None:
    """A background job or nohup ignores some signals, and so would the processes that tests start and stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget afterwards what a test registers."""
    from opera.data import SOURCES
    from opera.methods import METHODS
    from opera.retrieval.measures import MEASURES
    from opera.training.loss import LOSSES
    from opera.training.negatives import NEGATIVES

    sources = list(SOURCES)
    with ExitStack() as stack:
        for registry in (METHODS, LOSSES, MEASURES, NEGATIVES):
            stack.enter_context(patch.dict(registry))
        yield
    SOURCES[:] = sources


@pytest.fixture
def interrupted_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """``with interrupted_at(step)``: a training inside breaks off when that step has ended."""

    @contextmanager
    def interrupted(step: int) -> Iterator[None]:
        from opera.training.callbacks import Trace

        on_step_end = Trace.on_step_end

        def interrupt(self: Trace, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            on_step_end(self, args, state, control, **kwargs)
            if state.global_step == step:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Trace, "on_step_end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                yield

    return interrupted


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip("the real data is not beside the checkout (../shared/data)")
    return SHARED


@pytest.fixture
def make_beir(tmp_path: Path) -> Callable[..., Path]:
    """Make a fresh BEIR folder that a test may spoil."""
    return lambda **sizes: write_beir(tmp_path / "beir", **sizes)


@pytest.fixture(scope="session")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("data") / "topics")


@pytest.fixture(scope="session")
def irds() -> Path:
    """The paper's eight data sets as ir_datasets finds them on disk, with a few texts each."""
    return write_irds(irds_home())


@pytest.fixture
def run_opera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Opera:
    """``run_opera("train", ...)``: run ``opera train ...`` in this process and in an empty folder."""
    from commands import opera_here

    return lambda *arguments: opera_here(tmp_path, arguments, monkeypatch, capsys)


@pytest.fixture(scope="session")
def static_model(tmp_path_factory: pytest.TempPathFactory, _libraries_are_not_garbage: None) -> Path:
    """A static embedding model in a sentence-transformers folder, random vectors."""
    return write_static_model(tmp_path_factory.mktemp("static") / "model")


@pytest.fixture(scope="session")
def bert_model(tmp_path_factory: pytest.TempPathFactory, _libraries_are_not_garbage: None) -> Path:
    """A two-layer BERT with mean pooling and prompts, random weights, in a sentence-transformers folder."""
    return write_bert_model(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    """A finished run, which tests may read and not change."""
    import opera
    from small_runs import SMALL

    return opera.adapt(beir, model=static_model, out=tmp_path_factory.mktemp("trained") / "run", **SMALL)
