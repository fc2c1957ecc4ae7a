"""The typed contents of ``grid.json``: what all cells of a grid share, and where their runs lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from opera.core.errors import RunFolderError
from opera.core.files import replace_file

GRID_FILE = "grid.json"


class GridRecord(BaseModel):
    """``grid.json``.

    Attributes:
        model: the model that all cells start from.
        settings: the settings that all cells share, by full name, as JSON holds them.
        cells: run folders of the cells of all calls, relative to the grid's folder.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    model: str
    settings: dict[str, Any]
    cells: list[str] = []

    @classmethod
    def of_cells(cls, model: str, settings: Mapping[str, Any], cells: Sequence[str] = ()) -> Self:
        """Build a record; settings become what JSON makes of them, sorted by name."""
        plain = json.loads(json.dumps(dict(settings), sort_keys=True, default=str))
        return cls(model=model, settings=plain, cells=list(cells))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a grid's record.

        Raises:
            RunFolderError: if ``grid.json`` is missing, or is not as OPERA wrote it.
        """
        try:
            return cls.model_validate_json((folder / GRID_FILE).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            raise RunFolderError(f"{folder / GRID_FILE}: is not as OPERA wrote it; give another folder") from None

    def write(self, folder: Path) -> None:
        """Write ``grid.json`` to an existing folder."""
        text = json.dumps(self.model_dump(), indent=2) + "\n"
        replace_file(folder / GRID_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def planned_cells(folder: Path) -> list[Path]:
    """Return the run folders that a grid plans, finished or not; empty for a folder that is not a grid."""
    try:
        return [folder / cell for cell in GridRecord.read(folder).cells]
    except RunFolderError:
        return []
