"""Entries of the cache that grow file by file.

What a killed process had finished is kept, and the next one goes on from there. Where one file of an entry is damaged,
it alone is made anew. A finished entry is one like any other, and read as such.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opera.core.cache import MANIFEST, WHERE, facts_of, growing, made_once, sweep
from opera.core.files import remove
from opera.core.storage import writing
from opera.core.strict_json import read_json

log = logging.getLogger("opera")

SEAL = ".done.json"
"""Ends the name of what says that a file of a growing entry is whole."""


def grown(
    kind: str,
    key: str,
    names: Sequence[str],
    write: Callable[[Path, list[str]], Any],
    about: Mapping[str, Any],
) -> Path:
    """Return the folder of an entry of many files. Those that are absent or damaged are made first.

    What is finished when the process is killed, or ``write`` raises, is kept, and the next call goes on from there.

    Args:
        kind: what the entry holds, such as ``vectors``.
        key: hex digest of everything that decides its contents.
        names: its files.
        write: writes the files that it is told into the folder that it is given, and seals each (:func:`seal`). They
            appear under their names only.
        about: what a person who looks at the manifest wants to know; JSON.

    Raises:
        SettingError: if the folder of the cache cannot be used.
        StorageError: if a file cannot be written, as where the disk is full.
    """
    return made_once(kind, key, lambda home, problem: _grow(home, problem, names, write, about))


def seal(path: Path) -> None:
    """Say that a file of a growing entry is whole; its writer calls this."""
    _write_seal(path, facts_of(path))


def _grow(
    home: Path,
    problem: str,
    names: Sequence[str],
    write: Callable[[Path, list[str]], Any],
    about: Mapping[str, Any],
) -> None:
    """Make what is missing of an entry; the caller holds its lock."""
    folder = growing(home)
    with writing(home.parent, WHERE):
        sweep(home)
        if folder.is_symlink() or not folder.is_dir():
            remove(folder)
            if home.is_dir() and not home.is_symlink():
                home.rename(folder)
            else:
                folder.mkdir()
        remove(home)
        files = _keep_sound(folder, home.name, names)
        missing = [name for name in names if name not in files]
        if problem:
            log.info("note: the cached %s cannot be used (%s); making it anew", home, problem)
        elif files:
            log.info(
                "note: %d of %d files are there from a run that was broken off: %s",
                len(files),
                len(names),
                home,
            )
        try:
            if missing:
                write(folder, missing)
            files |= {name: _sealed(folder / name) for name in missing}
        except BaseException:
            if not any(folder.glob(f"*{SEAL}")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        manifest = {
            "key": home.name,
            **about,
            "files": {name: files[name] for name in sorted(files)},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for name in names:
            (folder / f"{name}{SEAL}").unlink(missing_ok=True)
        folder.rename(home)


def _keep_sound(folder: Path, key: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what is known of the files that are whole, and remove all else."""
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        manifest = read_json(folder / MANIFEST)
        known = dict(manifest["files"]) if manifest["key"] == key else {}
    sound = {}
    for name in names:
        with suppress(OSError, ValueError):
            facts = facts_of(folder / name)
            if facts == (known.get(name) or _sealed(folder / name)):
                sound[name] = facts
    for path in folder.iterdir():
        if path.name not in sound:
            remove(path)
    for name, facts in sound.items():
        _write_seal(folder / name, facts)
    return sound


def _write_seal(path: Path, facts: Mapping[str, Any]) -> None:
    path.with_name(f"{path.name}{SEAL}").write_text(json.dumps(facts), encoding="utf-8")


def _sealed(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = read_json(path.with_name(f"{path.name}{SEAL}"))
    return facts
