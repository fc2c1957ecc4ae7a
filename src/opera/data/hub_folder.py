"""What stands behind ``hf:``: a data set of the hub or a folder, and the files of a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from opera.core.errors import DataError
from opera.core.terminal import first_line, shown

_HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?(?::([\w.-]+))?")

SETTINGS_FILE = ".huggingface.yaml"
"""Where the library ``datasets`` would also look for what a README.md says."""


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


def check_card(folder: Path, source: str) -> None:
    """Check that what a folder says of its own files names none outside it, and no address to fetch.

    Raises:
        DataError: naming the file, the field and the path.
    """
    from huggingface_hub import (
        DatasetCard,
    )  # slow to import, and only a folder behind hf: has a card

    for home in (folder, folder.with_name(f"{folder.name}-qrels")):
        if os.path.lexists(home / SETTINGS_FILE):
            raise DataError(
                f"{source}: {home / SETTINGS_FILE}: hidden files are not read; write it into README.md"
            )
        if not (card := home / "README.md").is_file():
            continue
        try:
            configs = DatasetCard.load(card).data.to_dict().get("configs")
        except Exception as error:  # of the library's YAML
            raise DataError(
                f"{card}: cannot be read as the card of a data set ({first_line(error)})"
            ) from None
        for config in configs if isinstance(configs, list) else []:
            for field in ("data_files", "data_dir"):
                for path in _texts_in(config.get(field) if isinstance(config, dict) else None):
                    hidden = any(part.startswith(".") and part != "." for part in path.split("/"))
                    if "://" in path or "::" in path or path.startswith(("/", "~")) or hidden:
                        raise DataError(
                            f"{card}: {field}: must name files in this folder, got {shown(path)}"
                        )


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(part)


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
        for root, below, own in os.walk(
            home, onerror=refuse if kind == "data" else None, followlinks=True
        ):
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
