"""How threads wait, and how many there are: set before torch loads, and never against the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opera.core import threads
from opera.core.threads import THREADS, WAITING, cpu_quota, share_cores, usable_cores


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    for name in (*WAITING, THREADS):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def changed() -> dict[str, str]:
    before = dict(os.environ)
    share_cores()
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def test_threads_wait_asleep() -> None:
    assert changed() == {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("name", WAITING)
def test_the_users_own_way_of_waiting_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert changed() == {}


def test_nothing_is_set_that_torch_would_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    assert changed() == {}


@pytest.mark.parametrize(
    ("quota", "wanted"), [(None, None), (8.0, None), (99.0, None), (7.5, "7"), (2.0, "2"), (0.5, "1")]
)
def test_a_container_starts_as_many_threads_as_it_may_use(
    quota: float | None, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert changed().get(THREADS) == wanted


def test_the_users_own_number_of_threads_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: 2.0)
    monkeypatch.setenv(THREADS, "5")
    assert THREADS not in changed()


def test_torch_loads_after_the_variable_is_set_and_keeps_to_it() -> None:
    code = (
        "import os, sys, opera; assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])\n"
        "from opera.retrieval.device import describe_device; print(describe_device('cpu'))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in WAITING}
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**environment, THREADS: "1"}, check=True, capture_output=True, text=True
    )
    assert answer.stdout.splitlines() == ["PASSIVE", "cpu (1 thread)"]


class TestQuota:
    @pytest.fixture
    def groups(self, tmp_path: Path) -> Path:
        path = tmp_path / "cgroup"
        path.write_text("3:cpu,cpuacct:/a/b\n2:cpuset:/other\n0::/c\n")
        return path

    def quota(self, tmp_path: Path) -> float | None:
        return cpu_quota(tmp_path / "cgroup", tmp_path / "two", tmp_path / "one")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_none_is_set(self, tmp_path: Path, groups: Path) -> None:
        self.write(tmp_path / "two/c/cpu.max", "max 100000\n")
        self.write(tmp_path / "one/a/b/cpu.cfs_quota_us", "-1\n")
        self.write(tmp_path / "one/a/b/cpu.cfs_period_us", "100000\n")
        assert self.quota(tmp_path) is None

    def test_version_2(self, tmp_path: Path, groups: Path) -> None:
        self.write(tmp_path / "two/c/cpu.max", "150000 100000\n")
        assert self.quota(tmp_path) == 1.5

    def test_version_2_of_a_container_that_sees_its_own_group_as_the_root(self, tmp_path: Path, groups: Path) -> None:
        self.write(tmp_path / "two/cpu.max", "400000 100000\n")
        assert self.quota(tmp_path) == 4

    def test_version_1_and_the_smallest_of_the_groups_above(self, tmp_path: Path, groups: Path) -> None:
        for folder, quota in (("one/a/b", 800_000), ("one/a", 300_000), ("one", -1)):
            self.write(tmp_path / folder / "cpu.cfs_quota_us", f"{quota}\n")
            self.write(tmp_path / folder / "cpu.cfs_period_us", "100000\n")
        assert self.quota(tmp_path) == 3

    def test_files_that_hold_something_else(self, tmp_path: Path, groups: Path) -> None:
        self.write(tmp_path / "two/c/cpu.max", "ü 0\n")
        assert self.quota(tmp_path) is None

    def test_another_system(self, tmp_path: Path) -> None:
        assert cpu_quota(tmp_path / "absent", tmp_path, tmp_path) is None


def test_cores_are_those_that_this_process_may_run_on() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
