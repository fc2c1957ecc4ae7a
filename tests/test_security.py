"""What docs/security.md promises of the code as a whole; attacks on models and checkpoints are in their own tests."""

import ast
import socket
from pathlib import Path
from typing import Any

import huggingface_hub.constants

import opera
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
    asked: list[Any] = []

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
