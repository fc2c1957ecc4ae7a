"""No command runs what lies in the current folder: modules with the names of libraries, and settings of libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opera.core.errors import InputError
from opera.core.registry import load_extensions
from opera.experiments.grid import Processes

STANDARD = ["argparse", "csv", "json", "logging", "pickle", "platform", "random", "string", "subprocess", "typing"]
LIBRARIES = [
    "accelerate", "datasets", "huggingface_hub", "jinja2", "matplotlib", "numba", "numpy", "pandas",
    "pyarrow", "pydantic", "safetensors", "scipy", "sentence_transformers", "sklearn", "tokenizers", "torch", "tqdm",
    "transformers", "typer", "xxhash", "yaml",
]  # fmt: skip


@pytest.fixture
def hostile(tmp_path, monkeypatch) -> Path:
    """The current folder: its modules write their names to the file ``ran``, which is returned."""
    folder, ran = tmp_path / "hostile", tmp_path / "ran"
    folder.mkdir()
    for name in STANDARD + LIBRARIES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('{name} ')\n1 / 0\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return ran


def test_not_by_the_processes_of_a_grid(hostile, tmp_path, monkeypatch):
    """What the user puts on PYTHONPATH is found there."""
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "mine.py").write_text("FOUND = True")
    paths = [str(tmp_path / "extension"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    code = "import json, numpy, mine; input(); assert mine.FOUND"
    monkeypatch.setattr(Processes, "command", (sys.executable, "-c", code))
    assert Processes(1).run({}, tmp_path / "log") is None
    assert not hostile.exists()


@pytest.mark.parametrize(
    "command", [["-m", "opera"], [str(Path(sys.executable).parent / "opera")]], ids=["-m", "opera"]
)
def test_not_by_the_command(command, hostile):
    """It ends as in this process: one message, and status 2."""
    words = [*command, "evaluate", "absent", "--model", "absent"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("opera: error: absent: no such file or folder; pass a BEIR folder")
    assert (done.returncode, done.stdout, done.stderr.count("\n"), hostile.exists()) == (2, "", 1, False)


def test_settings_of_numba_are_refused(tmp_path, monkeypatch):
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'kernels'}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^\.numba_config\.yaml: numba would read its settings from this file"):
        load_extensions()
