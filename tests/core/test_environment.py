"""Variables are set before NumPy and torch load, also for processes started from here, and never against the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opera.core import environment
from opera.core.environment import (
    KERNELS,
    THREADS,
    WAITING,
    check_arithmetic,
    fix_arithmetic,
    is_reproducible,
    share_cores,
)
from opera.core.errors import SettingError

HAS_AVX2 = "needs" not in environment._problem()
needs_avx2 = pytest.mark.skipif(not HAS_AVX2, reason="needs an x86-64 processor with AVX2")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "1")
    for name in (*KERNELS, *THREADS, "MKL_DYNAMIC", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def forget_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {})


def test_nothing_is_set_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "0")
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
    with pytest.raises(SettingError, match="NumPy or torch was imported first"):
        check_arithmetic()


def test_other_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_libraries(monkeypatch)
    monkeypatch.setattr(environment.platform, "machine", lambda: "arm64")
    fix_arithmetic()
    with pytest.raises(SettingError, match="needs an x86-64 processor with AVX2, this is arm64"):
        check_arithmetic()


@needs_avx2
def test_the_command_and_what_it_starts_load_torch_with_these_kernels() -> None:
    """A process started by one that has imported NumPy inherits the variables and finds nothing to complain of."""
    child = "import numpy, opera, torch; from opera.core.environment import check_arithmetic; check_arithmetic(); "
    child += "print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), torch.cuda.is_available())"
    parent = f"import opera.cli, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    source = Path(environment.__file__).parents[2]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["AVX2", "1", "False"]


def test_a_program_that_imports_opera_is_left_as_it_was(tmp_path: Path) -> None:
    """Also one that is called opera; the command line changes both."""
    program = tmp_path / "opera"
    look = "state = [os.environ.get('OMP_WAIT_POLICY'), os.environ['PYTHONPATH'], list(sys.path)]"
    program.write_text(
        f"import os, sys\n{look}\nbefore = state\nimport opera\nopera.SettingError\n{look}\nprint(state == before)\n"
        f"import opera.cli\n{look}\nprint(state[0], '' in state[1].split(os.pathsep), os.getcwd() in state[2])"
    )
    source = Path(environment.__file__).parents[2]
    variables = {name: value for name, value in os.environ.items() if name not in WAITING}
    variables["PYTHONPATH"] = os.pathsep.join([str(source), ""])
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=variables, cwd=tmp_path / "elsewhere"
    )
    assert done.stdout.split("\n")[:2] == ["True", "PASSIVE False False"]


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the control group, of a machine with eight cores where torch is not loaded yet."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(environment, "QUOTA", tmp_path / "cpu.max")
    for name in (*WAITING, THREADS[0]):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    return tmp_path / "cpu.max"


def set_by_opera() -> dict[str, str]:
    before = dict(os.environ)
    share_cores()
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


@pytest.mark.usefixtures("quota")
def test_threads_wait_asleep_unless_the_user_or_torch_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set_by_opera() == {"OMP_WAIT_POLICY": "PASSIVE"}
    for name in WAITING:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        monkeypatch.setenv(name, "1")
        assert set_by_opera() == {}
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    assert set_by_opera() == {}


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("800000 100000", None), ("750000 100000", "7"), ("50000 100000", "1"), ("1 0", None)],
)
def test_a_container_starts_as_many_threads_as_it_may_use(
    text: str, cores: str | None, quota: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota.write_text(f"{text}\n")
    assert set_by_opera().get(THREADS[0]) == cores
    monkeypatch.setenv(THREADS[0], "5")
    assert THREADS[0] not in set_by_opera()
    assert environment.threads_are_given()
