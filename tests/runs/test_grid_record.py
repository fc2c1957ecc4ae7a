"""``grid.json`` is written and read by one typed record."""

from __future__ import annotations

from pathlib import Path

import pytest

from opera.core.errors import RunFolderError
from opera.runs.record import GridRecord, grid_in

TEXT = """{
  "model": "mod\\u00e8le",
  "settings": {
    "learning_rate": 0.1,
    "range": [
      1,
      50
    ]
  },
  "cells": [
    "x/ft/steps10/seed0"
  ],
  "data": {},
  "scale": null
}
"""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = GridRecord(model="modèle", settings={"learning_rate": 0.1, "range": [1, 50]}, cells=["x/ft/steps10/seed0"])
    record.write(tmp_path)
    assert (tmp_path / "grid.json").read_text() == TEXT
    assert GridRecord.read(tmp_path) == record
    assert grid_in(tmp_path) == record


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"cells": []}', "model: Field required"),
        ('{"model": "m", "settings": {}, "cells": [1]}', r"cells\.0: Input should be a valid string"),
        (
            '{"model": "m", "settings": {}, "cells": ["../other"]}',
            r"cells: '\.\./other' is no folder inside",
        ),
        ('{"model": "m", "settings": {}, "cells": ["/etc"]}', "cells: '/etc' is no folder inside the grid's"),
        ('{"model": "m", "settings": {}, "cells": ["a\\u0000b"]}', "is no folder inside the grid's"),
    ],
)
def test_anything_else_is_no_grid(tmp_path: Path, text: str, reason: str) -> None:
    assert grid_in(tmp_path) is None
    (tmp_path / "grid.json").write_text(text)
    for read in (grid_in, GridRecord.read):
        with pytest.raises(RunFolderError, match=rf"grid\.json: is not as OPERA wrote it: .*{reason}"):
            read(tmp_path)
