"""What docs/security.md promises of the code as a whole. No command runs what lies in the current folder."""

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

import opera
from opera.core.errors import InputError
from opera.core.registry import load_extensions
from opera.experiments.grid import Processes
from small_runs import SMALL

HOME = Path(opera.__file__).parent
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "tarfile"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "torch.load"}


def test_no_module_unpickles_unpacks_or_evaluates():
    for path in HOME.rglob("*.py"):
        assert unsafe(path) == set(), path


def unsafe(path: Path) -> set[str]:
    """Return what a module imports or calls that could run code of a file."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    imported.discard("pickle.UnpicklingError")  # to catch it
    reached = {name for name in imported if name.split(".")[0] in FORBIDDEN_MODULES}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    used = {ast.unparse(call.func) for call in calls}
    reached |= {name for name in used if name.rpartition(".")[2] in ("extract", "extractall", "unpack_archive")}
    reached |= FORBIDDEN_CALLS & used
    for call in calls:
        values = {word.arg: ast.unparse(word.value) for word in call.keywords}
        options = ("trust_remote_code", "allow_pickle", "shell")
        reached |= {name for name in options if values.get(name, "False") != "False"}
    return reached


def test_nothing_uses_the_network(train, beir, bert_model, monkeypatch):
    """No telemetry, no look at the hub, although it may be asked: data and models are local."""
    asked = []

    def refuse(*arguments: Any, **_: Any) -> None:
        asked.append(arguments)
        raise OSError("the network must not be used")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    run = train(model=bert_model, **{**SMALL, "max_steps": 2, "guard": False})
    opera.evaluate(beir, model=run.path)
    opera.search(beir, "t1w1", model=run.path)
    opera.inspect(beir, model=bert_model)
    opera.report(run.path)
    assert asked == []


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


def test_the_processes_of_a_grid_run_no_file_of_the_current_folder(hostile, tmp_path, monkeypatch):
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
def test_the_command_runs_no_file_of_the_current_folder(command, hostile):
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
