"""Commands that meet a fault at a chosen change of their folders, for tests and the chaos study."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from processes import Child, start

NEVER = 10**9
SCRIPT = Path(__file__).with_name("under_fault.py")


def under_fault(
    command: Sequence[str], log: Path, watched: Sequence[Path], fault: str = "none", at: int = NEVER, **environment: str
) -> Child:
    """Start ``opera command`` under one of the faults of ``under_fault.py``, at the n-th change of some folders.

    What happens between two changes dies with the process, so other moments are no different.
    """
    folders = os.pathsep.join(map(str, watched))
    return start([str(SCRIPT), fault, str(at), folders, *command], log, **environment)


def changes(log: Path) -> int:
    """How many changes a process has made that has ended, or its worker."""
    return max(map(int, re.findall(r"^(\d+) changes$", log.read_text(), re.MULTILINE)))
