"""Variables are set before NumPy and torch load, never against the user; an extra that is missing is said."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from opera.core import environment
from opera.core.environment import (
    EXTRAS,
    KERNELS,
    THREADS,
    WAITING,
    check_arithmetic,
    fix_arithmetic,
    require,
    share_cores,
)
from opera.core.errors import MissingExtraError, SettingError

needs_avx2 = pytest.mark.skipif("needs" in environment._problem(), reason="needs an x86-64 processor with AVX2")
SOURCE = Path(environment.__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch) -> None:
    """Variables as on a machine where nobody has set them, in a process that has not loaded NumPy or torch."""
    monkeypatch.setattr(environment, "sys", SimpleNamespace(modules={}))
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "1")
    for name in (*KERNELS, *THREADS, *WAITING, "MKL_DYNAMIC", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def test_nothing_is_set_unless_asked_for(monkeypatch):
    monkeypatch.setenv("OPERA_REPRODUCIBLE", "0")
    before = dict(os.environ)
    fix_arithmetic()
    check_arithmetic()
    assert dict(os.environ) == before


@needs_avx2
@pytest.mark.parametrize("threads", [None, "3"])
def test_kernels_and_threads_are_pinned(threads, monkeypatch):
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setenv("MKL_CBWR", "AUTO")
    fix_arithmetic()
    check_arithmetic()
    assert {name: os.environ[name] for name in KERNELS} == KERNELS
    assert {os.environ[name] for name in THREADS} == {threads or "1"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@needs_avx2
def test_libraries_that_have_chosen_already_and_other_processors_are_named(monkeypatch):
    environment.sys.modules["torch"] = sys
    fix_arithmetic()
    assert "MKL_CBWR" not in os.environ
    with pytest.raises(SettingError, match="NumPy or torch was imported first"):
        check_arithmetic()
    monkeypatch.setattr(environment.platform, "machine", lambda: "arm64")
    with pytest.raises(SettingError, match="needs an x86-64 processor with AVX2, this is arm64"):
        check_arithmetic()


@needs_avx2
@pytest.mark.slow
def test_the_command_and_what_it_starts_load_torch_with_these_kernels():
    """A process started by one that has imported NumPy inherits the variables and finds nothing to complain of."""
    child = "import numpy, opera, torch; from opera.core.environment import check_arithmetic; check_arithmetic(); "
    child += "print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), torch.cuda.is_available())"
    parent = f"import opera.cli, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["AVX2", "1", "False"]


def test_a_program_that_imports_opera_is_left_as_it_was(tmp_path):
    state = "(os.environ.get('OMP_WAIT_POLICY'), os.environ['PYTHONPATH'], sys.path)"
    program = (
        f"import os, sys; before = repr({state}); import opera; opera.SettingError; print(before == repr({state}))"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), ""])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables, cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


@pytest.fixture
def quota(monkeypatch, tmp_path) -> Path:
    """The file of the control group, of a machine with eight cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(environment, "QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.usefixtures("quota")
def test_threads_wait_asleep_unless_the_user_or_torch_has_chosen(monkeypatch):
    share_cores()
    assert os.environ.pop("OMP_WAIT_POLICY") == "PASSIVE"
    monkeypatch.setenv("KMP_BLOCKTIME", "1")
    share_cores()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delenv("KMP_BLOCKTIME")
    environment.sys.modules["torch"] = sys
    share_cores()
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", None), ("800000 100000", None), ("750000 100000", "7"), ("50000 100000", "1")]
)
def test_a_container_starts_as_many_threads_as_it_may_use(text, cores, quota, monkeypatch):
    quota.write_text(f"{text}\n")
    share_cores()
    assert os.environ.get(THREADS[0]) == cores
    monkeypatch.setenv(THREADS[0], "5")
    share_cores()
    assert os.environ[THREADS[0]] == "5"


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"^--this: needs the package .*: pip install "):
        require(next(iter(EXTRAS)), "--this")


@pytest.mark.parametrize("module", EXTRAS)
def test_the_project_offers_the_extra(module):
    requirement, extra = EXTRAS[module]
    offered = [re.split("[>=]", line)[0] for line in PROJECT["optional-dependencies"][extra]]
    assert requirement.strip("'") in offered
