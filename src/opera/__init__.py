"""OPERA: adapt a dense retriever to your own data.

    import opera
    run = opera.adapt("path/to/beir", model="minilm", method="dp", out="run")
    print(run.measures["after"]["nDCG@10"], run.model_path)

Names are loaded when first used, so ``import opera`` is quick and reading runs needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opera.adaptation import adapt as adapt
    from opera.api import evaluate as evaluate
    from opera.data import RetrievalData as RetrievalData
    from opera.data import load_data as load_data
    from opera.errors import InputError as InputError
    from opera.errors import OperaError as OperaError
    from opera.grid import compare as compare
    from opera.inspection import inspect as inspect
    from opera.page import report as report
    from opera.runs import Run as Run

_HOMES = {
    "adapt": "opera.adaptation",
    "evaluate": "opera.api",
    "compare": "opera.grid",
    "inspect": "opera.inspection",
    "load_data": "opera.data",
    "report": "opera.page",
    "RetrievalData": "opera.data",
    "Run": "opera.runs",
    "OperaError": "opera.errors",
    "InputError": "opera.errors",
}

__all__ = [
    "InputError",
    "OperaError",
    "RetrievalData",
    "Run",
    "adapt",
    "compare",
    "evaluate",
    "inspect",
    "load_data",
    "report",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'opera' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
