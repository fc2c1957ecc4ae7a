"""What ``--plan`` prints: the cells of a grid, their times and the disk they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opera.cli.printing.console import console
from opera.core.terminal import json_text, say
from opera.experiments.grid.preview import disk_line, plan_records, plan_table
from opera.experiments.grid.progress import progress_line
from opera.experiments.grid.status import Status


def print_plan(
    status: Status, as_json: bool, about: Mapping[str, Any] | None = None, notes: Sequence[str] = ()
) -> None:
    """Print the cells, and ``notes`` below them; as JSON ``about`` stands before them."""
    if as_json:
        say(json_text({**(about or {}), **plan_records(status)}))
        return
    console().print(plan_table(status))
    say("\n".join(line for line in (progress_line(status), disk_line(status), *notes) if line))
