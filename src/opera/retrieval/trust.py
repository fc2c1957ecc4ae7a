"""A model is read, never run: no pickle, no code that its folder names, and from the hub nothing but data files."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import ORIGINAL_TRANSFORMER_MODELS
from sentence_transformers.base.modules import Module
from sentence_transformers.util import import_from_string

from opera.core.errors import ModelError
from opera.core.paths import kind_of_place
from opera.core.reading import read_text
from opera.core.terminal import place, shown
from opera.retrieval.locate import check_readable

DATA_FILES = ["*.json", "*.jinja", "*.model", "*.safetensors", "*.txt"]
"""What is downloaded from a repository on the hub: configuration, vocabulary and weights, no code and no pickle."""
LISTS_OF_MODULES = ("modules.json", "router_config.json", "config.json")  # the last one in folders of old routers
CHECKPOINT = re.compile(r"checkpoint-[0-9]+")
NO_PICKLE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""torch's own variable; without it, a model's ``sentence_bert_config.json`` could ask for ``weights_only=False``."""


def download_model(name: str, organization: str | None = SentenceTransformer.default_huggingface_organization) -> Path:
    """Return the folder of a model on the hub, downloaded or from huggingface_hub's cache.

    Args:
        name: ``OWNER/NAME``, or a name alone.
        organization: the owner of models that are given by name alone.

    Raises:
        OSError, ValueError: by huggingface_hub, if there is no such model or the hub cannot be reached.
    """
    short = "/" not in name and name.lower() not in ORIGINAL_TRANSFORMER_MODELS
    full = f"{organization}/{name}" if short else name
    return Path(snapshot_download(full, allow_patterns=DATA_FILES))


def check_model_folder(folder: Path, known: Iterable[str] = ()) -> None:
    """Refuse a folder that asks for code of others or holds weights as pickles only.

    Args:
        folder: as sentence-transformers or transformers saves a model.
        known: classes beyond those of sentence-transformers that its modules may be of.

    Raises:
        ModelError: naming the file, the rule and the value.
    """
    for path in _files(folder):
        check_readable(path.parent)
        if path.exists():
            check_readable(path)
        if (found := kind_of_place(path)) not in ("a file", None):  # opening a pipe would wait for ever
            raise ModelError(f"{path}: must be a file, but is {found}")
        for name in _module_classes(path) if path.name in LISTS_OF_MODULES else ():
            if name not in known and not _is_module(name):
                raise ModelError(
                    f"{path}: the type of a module must be a module of sentence_transformers, got {shown(name)}; "
                    "OPERA runs no code that a model's folder names"
                )
        if path.name.endswith(".safetensors.index.json"):
            _check_index(path)
        if path.match("pytorch_model*.bin*") and not any(path.parent.glob("*.safetensors")):
            raise ModelError(
                f"{path}: weights must be .safetensors, and this is a pickle, which may run code; if you trust it, "
                "load the model with sentence_transformers and save it again with save_pretrained"
            )


@contextmanager
def pickles_refused() -> Iterator[None]:
    """Inside, ``torch.load`` reads plain weights only, whatever its caller or a model's configuration asks for."""
    before = os.environ.get(NO_PICKLE)
    os.environ[NO_PICKLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(NO_PICKLE)
        if before is not None:
            os.environ[NO_PICKLE] = before


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, also behind links, each folder once."""
    seen = set()
    for home, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        seen.add(os.path.realpath(home))
        folders[:] = sorted(name for name in folders if os.path.realpath(Path(home, name)) not in seen)
        if Path(home) == folder:  # what a trainer left, and nothing loads
            named = _text_of_lists(folder)
            folders[:] = [name for name in folders if not CHECKPOINT.fullmatch(name) or name in named]
        yield from (Path(home, name) for name in sorted(names))


def _refuse(error: OSError) -> None:
    raise ModelError(f"{place(error.filename)}: cannot be read ({error.strerror})")


def _text_of_lists(folder: Path) -> str:
    """The files that name the folders of modules, as one text; parsed, because JSON can write a name with escapes."""
    places = [folder / name for name in LISTS_OF_MODULES]
    return "".join(json.dumps(_parsed(path), ensure_ascii=False) for path in places if path.is_file())


def _module_classes(path: Path) -> list[str]:
    """Return the classes that ``modules.json`` lists, or that the configuration of a router does."""
    content = _parsed(path)
    if path.name == "modules.json":
        if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
            raise ModelError(f"{path}: must be a list of objects, one per module")
        return [_text(path, entry.get("type")) for entry in content]
    types = content.get("types", {}) if isinstance(content, dict) else {}
    return [_text(path, name) for name in types.values()] if isinstance(types, dict) else []


def _parsed(path: Path) -> Any:
    try:
        return json.loads(read_text(path))  # as the library reads it, which takes NaN and the last of equal keys
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not JSON") from None


def _check_index(path: Path) -> None:
    """Check that the list of the parts of large weights names files of that format in that folder."""
    content = _parsed(path)
    parts = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(parts, dict):
        raise ModelError(f"{path}: must be an object with the key 'weight_map'")
    for name in sorted({_text(path, name, "name of a file") for name in parts.values()}):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"{path}: weights must be .safetensors files in the same folder, got {shown(name)}")
        if not (path.parent / name).is_file():
            raise ModelError(f"{path}: the file {shown(name)} that it names is missing")


def _text(path: Path, name: Any, what: str = "type of a module") -> str:
    if not isinstance(name, str):
        raise ModelError(f"{path}: the {what} must be a text, got {shown(name)}")
    return name


def _is_module(name: str) -> bool:
    if not name.startswith("sentence_transformers."):
        return False
    try:
        found = import_from_string(name)
    except (ImportError, ValueError, TypeError):
        return False
    return inspect.isclass(found) and issubclass(found, Module)
