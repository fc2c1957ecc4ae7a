"""No command runs what lies in the current folder: modules with the names of libraries, and settings of libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opera
from opera.cli import COMMANDS as GROUPS
from opera.core.errors import InputError
from opera.core.registry import load_extensions
from opera.experiments.grid.run import Processes
from small_runs import SMALL
from tiny_world import write_beir, write_bert_model

STANDARD = ["argparse", "csv", "json", "logging", "pickle", "platform", "random", "string", "subprocess", "typing"]
LIBRARIES = [
    "accelerate", "datasets", "huggingface_hub", "jinja2", "matplotlib", "numba", "numpy", "pandas",
    "pyarrow", "pydantic", "safetensors", "scipy", "sentence_transformers", "sklearn", "tokenizers", "torch", "tqdm",
    "transformers", "typer", "xxhash", "yaml",
]  # fmt: skip
QUICK = "--steps 2 --batch-size 4"
COMMANDS = {
    "train": f"data --model model --out trained {QUICK}",
    "evaluate": "data --model model",
    "score": "data --model model --out pairs.parquet",
    "mine": "data --model model --range 1:10 --out mined.jsonl",
    "pairs": "python:json --out weak.csv",
    "search": "data t1w1 --model model",
    "export": "run --onnx --no-measure --out exported",
    "push": "run a-name/a-model",
    "compare": f"data --model model --methods ft --seeds 0 {QUICK} --out grid",
    "report": "run --out report.html",
    "inspect": "data --model model",
    "review": "run",
    "quickstart": "--help",
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: its modules write their names to the file ``ran``."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in STANDARD + LIBRARIES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n1 / 0\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return folder


def what_ran(hostile: Path) -> str:
    ran = hostile.parent / "ran"
    return ran.read_text() if ran.exists() else ""


def test_not_by_the_processes_of_a_grid(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user puts on PYTHONPATH is found there."""
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "mine.py").write_text("FOUND = True")
    paths = filter(
        None, [str(tmp_path / "extension"), os.environ.get("PYTHONPATH")]
    )  # an empty one is the current folder
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    code = "import json, numpy, mine; input(); print(json.dumps({'done': mine.FOUND}))"
    monkeypatch.setattr(Processes, "command", (sys.executable, "-c", code))
    assert Processes(1).run({}, Path(os.devnull)) == {"done": True}
    assert what_ran(hostile) == ""


def test_not_by_python_m(hostile: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "opera", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, what_ran(hostile)) == (0, "", "")


@pytest.mark.slow
def test_not_through_an_empty_item_of_pythonpath(hostile: Path) -> None:
    """``PYTHONPATH=$PYTHONPATH:/more`` has one where the variable was empty; to Python it is the current folder."""
    for name in STANDARD:  # Python itself imports some of these before OPERA can do anything
        (hostile / f"{name}.py").unlink()
    environment = {**os.environ, "PYTHONPATH": os.pathsep + os.environ.get("PYTHONPATH", "")}
    for command in ([str(Path(sys.executable).parent / "opera")], [sys.executable, "-m", "opera"]):
        listing = [*command, "train", "--help-settings"]
        done = subprocess.run(listing, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr, what_ran(hostile)) == (0, "", "")


def test_settings_of_numba_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unguarded, the folder that they name is used."""
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'kernels'}")
    monkeypatch.chdir(tmp_path)
    code = "import numba; print(numba.config.CACHE_DIR)"
    unguarded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert unguarded.stdout.strip() == str(tmp_path / "kernels")
    for ask in (load_extensions, lambda: opera.load_data):
        with pytest.raises(InputError, match=r"^\.numba_config\.yaml: numba would read its settings from this file"):
            ask()


def test_every_command_is_here() -> None:
    assert COMMANDS.keys() == {command.__name__ for group in GROUPS.values() for command in group}


ALL_AT_ONCE = """
import json, sys
from opera.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["opera", *words]
    try:
        main()
    except SystemExit as ended:
        print("ended:", words[0], ended.code)
"""


@pytest.mark.slow
def test_not_by_the_installed_command(hostile: Path, tmp_path: Path) -> None:
    """Those that start processes of their own, or compile, each alone; the others one after the other."""
    write_beir(hostile / "data")
    write_bert_model(hostile / "model")
    opera.adapt(hostile / "data", model=hostile / "model", out=hostile / "run", **SMALL)
    alone = ("train", "compare", "export")
    (tmp_path / "all.py").write_text(ALL_AT_ONCE)
    words = [[name, *options.split()] for name, options in COMMANDS.items() if name not in alone]
    calls = [[str(Path(sys.executable).parent / "opera"), name, *COMMANDS[name].split()] for name in alone]
    calls.append([sys.executable, str(tmp_path / "all.py"), json.dumps(words)])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for call in calls:
        done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, done.stderr
        assert what_ran(hostile) == ""
    for name, *_ in words:
        assert f"ended: {name} {int(name == 'push')}" in done.stdout.splitlines(), "push finds no hub"
