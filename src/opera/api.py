"""The public Python API: every name that ``opera`` exports, and the module that defines it.

A name is loaded when it is first used. So ``import opera`` is quick, and reading runs needs no
torch. Extensions (``OPERA_EXTENSIONS``) are imported first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from opera.core.registry import load_extensions

if TYPE_CHECKING:
    from opera.config.recipe import recipe as recipe
    from opera.core.cache import cache as cache
    from opera.core.errors import DataError as DataError
    from opera.core.errors import InputError as InputError
    from opera.core.errors import ModelError as ModelError
    from opera.core.errors import OperaError as OperaError
    from opera.core.errors import RunFolderError as RunFolderError
    from opera.core.errors import SettingError as SettingError
    from opera.core.errors import StorageError as StorageError
    from opera.core.errors import TrainingError as TrainingError
    from opera.data import RetrievalData as RetrievalData
    from opera.data import load_data as load_data
    from opera.deployment.export import export as export
    from opera.deployment.push import push as push
    from opera.diagnostics.inspect import inspect as inspect
    from opera.diagnostics.review import review as review
    from opera.experiments.compare import compare as compare
    from opera.experiments.report import report as report
    from opera.retrieval.search import search as search
    from opera.run.adapt import adapt as adapt
    from opera.run.evaluate import evaluate as evaluate
    from opera.run.show import show as show
    from opera.run_folder.folder import Run as Run
    from opera.training.corpus_pairs import pairs as pairs
    from opera.training.export import mine as mine
    from opera.training.export import score as score
    from opera.training.pair_pruning import PairPruning as PairPruning

_MODULES = {
    "adapt": "opera.run.adapt",
    "evaluate": "opera.run.evaluate",
    "score": "opera.training.export",
    "mine": "opera.training.export",
    "pairs": "opera.training.corpus_pairs",
    "search": "opera.retrieval.search",
    "export": "opera.deployment.export",
    "push": "opera.deployment.push",
    "compare": "opera.experiments.compare",
    "inspect": "opera.diagnostics.inspect",
    "load_data": "opera.data",
    "cache": "opera.core.cache",
    "recipe": "opera.config.recipe",
    "review": "opera.diagnostics.review",
    "show": "opera.run.show",
    "report": "opera.experiments.report",
    "RetrievalData": "opera.data",
    "PairPruning": "opera.training.pair_pruning",
    "Run": "opera.run_folder.folder",
    "OperaError": "opera.core.errors",
    "InputError": "opera.core.errors",
    "SettingError": "opera.core.errors",
    "DataError": "opera.core.errors",
    "ModelError": "opera.core.errors",
    "RunFolderError": "opera.core.errors",
    "StorageError": "opera.core.errors",
    "TrainingError": "opera.core.errors",
}

__all__ = [
    "DataError",
    "InputError",
    "ModelError",
    "OperaError",
    "PairPruning",
    "RetrievalData",
    "Run",
    "RunFolderError",
    "SettingError",
    "StorageError",
    "TrainingError",
    "adapt",
    "cache",
    "compare",
    "evaluate",
    "export",
    "inspect",
    "load_data",
    "mine",
    "pairs",
    "push",
    "recipe",
    "report",
    "review",
    "score",
    "search",
    "show",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'opera' has no attribute '{name}'")
    if _MODULES[name] != "opera.core.errors":  # an except clause must not fail
        load_extensions()
    return getattr(import_module(_MODULES[name]), name)
