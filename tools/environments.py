"""Install the wheel into empty environments, and run part of the tests there.

    .venv/bin/python tools/environments.py newest oldest bare

- ``newest``: the wheel with all extras by ``pip install``, every package as new as ``pyproject.toml`` allows.
- ``oldest``: the same, every direct dependency as old as ``pyproject.toml`` allows.
- ``bare``: the wheel without extras.

torch is the version of ``requirements.lock`` in each, since others bring gigabytes; ``--torch 2.6.0`` tests another.
uv installs them: it keeps what it fetched, so that the environments share it.
Environments are made in a temporary folder, or in ``--keep FOLDER``. The tests import what is installed, not ``src``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
TEST_PACKAGES = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "scikit-learn"]
TESTS = {
    "newest": ["tests/test_guides.py::test_the_blocks_of_a_guide_run[start.md]", "tests/core/test_environment.py"],
    "oldest": [
        "tests/cli/test_train.py",
        "tests/run/test_backbones.py::test_each_backbone_trains",
    ],
    "bare": ["tests/cli/test_train.py"],
}
"""The tests of each environment; ``--tests PATH`` runs others. ``make test`` runs all with the pinned versions."""


def main() -> None:
    """Build the wheel, then make and try each environment; the first failure ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(TESTS))
    parser.add_argument("--torch", default=pinned("torch"), help="version of torch; default: that of the lock file")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="other tests to run")
    parser.add_argument("--keep", type=Path, help="folder for the environments, which then stay")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (arguments.keep or Path(temporary)).resolve()
        run(UV, "build", "--quiet", "--wheel", "--out-dir", home / "wheel", ROOT)
        (wheel,) = (home / "wheel").glob("*.whl")
        for name in arguments.names:
            python = make_environment(home / name, name, wheel, arguments.torch)
            try_environment(python, name, arguments.tests or TESTS[name])


def make_environment(folder: Path, name: str, wheel: Path, torch: str) -> Path:
    """Make an environment and install the wheel and pytest; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    constraints = folder / "constraints.txt"
    constraints.write_text(f"torch=={torch}\n", encoding="utf-8")
    wanted: list[object] = [wheel if name == "bare" else f"{wheel}[all]", *TEST_PACKAGES]
    if name == "oldest":
        wanted += ["--requirement", oldest_versions(folder, constraints)]
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", constraints, *wanted)
    return python


def oldest_versions(folder: Path, constraints: Path) -> Path:
    """Resolve the lowest versions that ``pyproject.toml`` allows, and return the list as a file."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    chosen = [word for extra in extras if extra not in ("all", "dev", "docs") for word in ("--extra", extra)]
    resolve = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--resolution", "lowest-direct"]
    path = folder / "oldest.txt"
    run(*resolve, "--constraint", constraints, *chosen, "--output-file", path, ROOT / "pyproject.toml")
    return path


def try_environment(python: Path, name: str, paths: list[str]) -> None:
    """Run the command and part of the tests, far from ``src``."""
    print(f"{name}: {versions(python)}", flush=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        run(python.with_name("opera"), "--version", folder=Path(elsewhere))
    strict = [] if name == "newest" else ["--override-ini=filterwarnings=default"]  # old versions warn of new ones
    tests = [ROOT / path for path in paths]
    run(python, "-m", "pytest", "--numprocesses=2", "--dist=worksteal", "-p", "no:cacheprovider", *strict, *tests)


def versions(python: Path) -> str:
    """Name the installed versions of the packages that ``pyproject.toml`` bounds."""
    listed = subprocess.run([UV, "pip", "freeze", "--python", python], capture_output=True, text=True, check=True)
    installed = dict(re.findall(r"^([\w.-]+)==(\S+)$", listed.stdout, re.MULTILINE))
    shown = ("torch", "transformers", "sentence-transformers", "accelerate", "datasets", "numpy", "pyarrow", "numba")
    return ", ".join(f"{package} {installed[package]}" for package in shown)


def pinned(package: str) -> str:
    """Return the version of ``requirements.lock``."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^{package}==(\S+)$", text, re.MULTILINE)
    return str(version)


def run(*command: object, folder: Path = ROOT) -> None:
    """Run a command; a failure ends the program with its status."""
    environment = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
    ended = subprocess.run([str(word) for word in command], cwd=folder, env=environment, check=False)
    if ended.returncode:
        sys.exit(f"failed ({ended.returncode}): {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
