"""What stands behind ``hf:``: a data set of the hub or a folder, and the files of a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from opera.core.errors import DataError
from opera.core.terminal import shown

_HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?(?::([\w.-]+))?")


class HubName(NamedTuple):
    """What stands behind ``hf:``.

    Attributes:
        place: ``OWNER/NAME``, or a folder.
        config: the configuration of a data set of pairs, or ``None``.
        split: the only split to read, or ``None``.
        local: whether it is a folder.
    """

    place: str
    config: str | None
    split: str | None
    local: bool

    @classmethod
    def parse(cls, name: str) -> HubName:
        """Read what stands behind ``hf:``; a folder that is there goes before a data set of the hub.

        Raises:
            DataError: if it can be neither.
        """
        folder, _, split = name.rpartition(":")
        for place, part in ((name, None), (folder, split)):
            if place and Path(place).is_dir():
                # "." and ".." have no name that the folder beside it could share
                whole = str(Path(place).resolve()) if Path(place).name in ("", "..") else place
                if not Path(whole).name:
                    raise DataError(f"hf:{shown(name)[1:-1]}: must be the folder of one data set")
                return cls(whole, None, part, True)
        found = _HUB.fullmatch(name)
        if found is None:
            raise DataError(
                f"hf:{shown(name)[1:-1]}: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT"
            )
        return cls(found[1], found[2], found[3], False)


def local_folder(name: str) -> str | None:
    """Return the folder that stands behind ``hf:``; ``None`` where it is no folder."""
    parsed = HubName.parse(name)
    return parsed.place if parsed.local else None


def hub_files(folder: Path, source: str) -> tuple[list[Path], list[tuple[str, str]]]:
    """Return the files of a folder, and of the one with its judgements beside it, but hidden ones; and their names.

    Links are followed. A folder that is linked to once more is not read again; the names then say which it is.

    Raises:
        DataError: if there is no file, or a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"{source}: {error.filename}: cannot be read ({error.strerror})")

    files: list[Path] = []
    names: list[tuple[str, str]] = []
    for kind, home in (("data", folder), ("qrels", folder.with_name(f"{folder.name}-qrels"))):
        seen: dict[Path, str] = {}
        for root, below, own in os.walk(home, onerror=refuse if kind == "data" else None, followlinks=True):
            here, name = Path(root).resolve(), f"{kind}/{Path(root).relative_to(home).as_posix()}"
            if here in seen:
                names.append((name, seen[here]))
                below.clear()
                continue
            seen[here] = name
            below[:] = sorted(part for part in below if not part.startswith("."))
            found = [Path(root, part) for part in sorted(own) if not part.startswith(".")]
            files += (kept := [path for path in found if path.is_file()])
            names += ((name, path.name) for path in kept)
    if not files:
        raise DataError(f"{source}: has no files but hidden ones")
    return files, names
