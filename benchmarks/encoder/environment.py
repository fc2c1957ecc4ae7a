"""An environment of FlagEmbedding's own, with the versions of what both use that ``requirements.lock`` pins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = "1.4.2"
SHARED = ("torch", "transformers", "sentence-transformers", "datasets", "accelerate", "tokenizers")


def flagembedding(folder: Path) -> Path | None:
    """Return the Python of the environment in ``folder``, made if it is not there; ``None`` where it cannot be."""
    python, done = folder / "bin" / "python", folder / "made"
    wanted = [f"FlagEmbedding=={VERSION}", *(f"{package}=={pinned(package)}" for package in SHARED)]
    if done.is_file() and done.read_text() == "\n".join(wanted):
        return python
    print(f"making an environment for FlagEmbedding {VERSION}, once: {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", folder],
        [*install, wanted[1]],
        [*install, *wanted],
    ]
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            reason = (ended.stderr.strip().splitlines() or ["no word"])[-1]
            print(f"FlagEmbedding is left out, since its environment cannot be made: {reason}", flush=True)
            return None
    done.write_text("\n".join(wanted))
    return python


def pinned(package: str) -> str:
    """Return the version of ``requirements.lock``."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^{package}==([^\s+]+)", text, re.MULTILINE)
    return str(version)
