"""The typed contents of ``grid.json``: what all cells of a grid share, and where their runs lie."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, field_validator

from opera.core.files import replace_file
from opera.core.terminal import shown
from opera.runs.reading import read_model

GRID_FILE = "grid.json"


class GridRecord(BaseModel):
    """``grid.json``.

    Attributes:
        model: the model that all cells start from.
        settings: the settings that all cells share, by full name, as JSON holds them.
        cells: run folders of the cells of all calls, relative to the grid's folder.
        data: settings of single data sets, by the data set's folder; empty where all share theirs.
        scale: the size of a reproduction that is not the paper's own: its figures are not to be compared with the
            paper's.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    model: str
    settings: dict[str, Any]
    cells: list[str] = []
    data: dict[str, dict[str, Any]] = {}
    scale: str | None = None

    @field_validator("cells", "data")
    @classmethod
    def _stay_inside(cls, folders: Any) -> Any:
        for folder in folders:
            if (
                not folder.strip()
                or "\0" in folder
                or Path(folder).is_absolute()
                or ".." in Path(folder).parts
            ):
                raise ValueError(f"{shown(folder)} is no folder inside the grid's")
        return folders

    @classmethod
    def of_cells(
        cls,
        model: str,
        settings: Mapping[str, Any],
        cells: Sequence[str] = (),
        data: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        """Build a record; settings become what JSON makes of them, sorted by name."""
        plain, by_set = (
            json.loads(json.dumps(values, sort_keys=True, default=str))
            for values in (settings, data or {})
        )
        return cls(model=model, settings=plain, cells=list(cells), data=by_set)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a grid's record.

        Raises:
            RunFolderError: if ``grid.json`` is missing, or is not as OPERA wrote it.
        """
        return read_model(folder / GRID_FILE, cls)

    def write(self, folder: Path) -> None:
        """Write ``grid.json`` to an existing folder."""
        text = json.dumps(self.model_dump(), indent=2) + "\n"
        replace_file(
            folder / GRID_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8")
        )


def planned_cells(folder: Path) -> list[Path]:
    """Return the run folders that a grid plans, finished or not; empty for a folder that is not a grid.

    Raises:
        RunFolderError: if there is a ``grid.json``, and it is not as OPERA wrote it.
    """
    if not os.path.lexists(folder / GRID_FILE):
        return []
    return [folder / cell for cell in GridRecord.read(folder).cells]
