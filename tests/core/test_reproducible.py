"""``OPERA_REPRODUCIBLE``: kernels are pinned before NumPy and torch load, also in processes started from here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opera.core import reproducible
from opera.core.errors import SettingError
from opera.core.reproducible import KERNELS, THREADS, check_arithmetic, fix_arithmetic, is_reproducible

HAS_AVX2 = not reproducible._find_problems() or "imported" in reproducible._find_problems()[0]
needs_avx2 = pytest.mark.skipif(not HAS_AVX2, reason="needs an x86-64 processor with AVX2")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducible, "_problems", [])
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "1")
    for name in (*KERNELS, *THREADS, "MKL_DYNAMIC", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def forget_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {})


@pytest.mark.parametrize("value", ["", "0", None])
def test_nothing_is_set_unless_asked_for(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_REPRODUCIBLE", value) if value is not None else monkeypatch.delenv("OPERA_REPRODUCIBLE")
    before = dict(os.environ)
    fix_arithmetic()
    check_arithmetic()
    assert not is_reproducible()
    assert dict(os.environ) == before


@needs_avx2
@pytest.mark.parametrize("threads", [None, "3"])
def test_kernels_and_threads_are_pinned(threads: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_libraries(monkeypatch)
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setenv("MKL_CBWR", "AUTO")
    fix_arithmetic()
    check_arithmetic()
    assert {name: os.environ[name] for name in KERNELS} == KERNELS
    assert {os.environ[name] for name in THREADS} == {threads or "1"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@needs_avx2
def test_libraries_that_have_chosen_already_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {"torch": None})
    fix_arithmetic()
    assert "MKL_CBWR" not in os.environ
    with pytest.raises(SettingError, match="torch was imported before opera and has chosen its kernels; import opera"):
        check_arithmetic()


def test_other_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_libraries(monkeypatch)
    monkeypatch.setattr(reproducible.platform, "machine", lambda: "arm64")
    fix_arithmetic()
    with pytest.raises(SettingError, match="needs an x86-64 processor with AVX2, this is arm64"):
        check_arithmetic()


@needs_avx2
def test_the_command_and_what_it_starts_load_torch_with_these_kernels() -> None:
    """A process started by one that has imported NumPy inherits the variables and finds nothing to complain of."""
    child = "import numpy, opera, torch; from opera.core.reproducible import check_arithmetic; check_arithmetic(); "
    child += "print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), torch.cuda.is_available())"
    parent = f"import opera.cli, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    source = Path(reproducible.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["AVX2", "1", "False"]
