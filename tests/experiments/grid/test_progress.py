"""What a grid shows while it runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from grids import finish_cell, planned
from opera.experiments.grid import progress
from opera.experiments.grid.progress import Progress, log_tail
from opera.experiments.grid.status import Status


def test_a_line_for_each_cell_that_starts_or_ends(
    tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each method: dp done, ft failed or running, rp resumed."""
    cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
    failed, done, *_ = cells
    for cell in cells:
        if cell.label == "dp":
            finish_cell(cell, ndcg=0.5 + cell.seed / 10)
    monkeypatch.setattr(progress, "last_complete_checkpoint", lambda folder: 10 if "rp" in folder.parts else None)
    status = Status.scan(cells)
    tell = Progress(status)
    status.failed[failed.folder] = "[bold]no memory"
    failed.log.parent.mkdir(parents=True, exist_ok=True)
    failed.log.write_text("before\nTraceback\nOutOfMemoryError")
    for cell in (cells[3], cells[-1]):
        status.running[cell.folder] = clock.now
    for cell in (failed, done, cells[3], cells[-1]):
        tell(status, cell)
    first, *tail, ended, started, resumed = capsys.readouterr().err.splitlines()
    assert resumed == f"started: {cells[-1].title} (6 of 6); resumes from its checkpoint; log: {cells[-1].log}"
    assert started == f"started: {cells[3].title} (4 of 6); log: {cells[3].log}"
    assert first == "failed: [red]x, ft, 10 steps, seed 0: [bold]no memory"
    assert tail[0] == "before"
    assert tail[-1] == f"  full log: {failed.log}"
    assert ended.startswith("done: [red]x, dp, 10 steps, seed 0: nDCG@10 0.5000; 2 of 6 cells done, 2 running")


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\nb\nc\n\xff\n\n")
    assert log_tail(tmp_path / "log", 2) == "c\n\ufffd"
    assert log_tail(tmp_path / "absent") == ""
