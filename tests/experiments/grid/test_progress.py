"""What a grid shows while it runs."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from grids import finish_cell, planned
from opera.experiments.grid import progress
from opera.experiments.grid.progress import live_progress, log_tail
from opera.experiments.grid.status import Running, Status


class TestProgress:
    @pytest.fixture
    def status(self, tmp_path: Path, clock: SimpleNamespace) -> Status:
        """Of each method: dp done, ft failed or running, the rest waits."""
        cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
        for cell in cells:
            if cell.label == "dp":
                finish_cell(cell, ndcg=0.5 + cell.seed / 10)
        status = Status.scan(cells)
        failed, *_ = cells
        status.failed[failed.folder] = "[bold]no memory"
        failed.log.parent.mkdir(parents=True, exist_ok=True)
        failed.log.write_text("before\nTraceback\nOutOfMemoryError")
        status.running[cells[3].folder] = Running(clock.now, step=5)
        return status

    def screen(self, monkeypatch: pytest.MonkeyPatch, height: int, terminal: bool = True) -> io.StringIO:
        buffer = io.StringIO()
        monkeypatch.setattr(
            progress,
            "SafeConsole",
            lambda **_: Console(file=buffer, force_terminal=terminal, width=100, height=height, highlight=False),
        )
        return buffer

    def test_a_table_on_a_terminal(self, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = self.screen(monkeypatch, 40)
        with live_progress(status) as on_change:
            on_change(status, status.cells[0])
            on_change(status, None)
        text = buffer.getvalue()
        assert "failed: [red]x, ft, 10 steps, seed 0: [bold]no memory" in text
        assert "OutOfMemoryError" in text
        last = text[text.rindex("nDCG@10 so far") :]
        for part in ("✗", "50%", "✓", "·", "0.550 ± 0.071", "2 of 6 cells done, 1 running, 1 failed, about"):
            assert part in last

    def test_rows_give_way_on_a_low_terminal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cells = planned(tmp_path, steps=list(range(10, 20)))
        status = Status.scan(cells)
        status.running[cells[-1].folder] = Running(0.0, step=2)
        buffer = self.screen(monkeypatch, 12)
        with live_progress(status):
            pass
        assert "and 14 more rows" in buffer.getvalue()
        assert "11%" in buffer.getvalue(), "running rows come first"

    def test_lines_elsewhere(
        self, status: Status, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.screen(monkeypatch, 40, terminal=False)
        monkeypatch.setattr(progress, "last_complete_checkpoint", lambda folder: 10 if "rp" in folder.parts else None)
        with live_progress(status) as on_change:
            on_change(status, status.cells[0])
            on_change(status, status.cells[1])
            on_change(status, None)
            last = status.cells[-1]
            status.running[last.folder] = Running(0.0)
            on_change(status, None)
        failed, *tail, started, done, resumed = capsys.readouterr().err.splitlines()
        assert resumed == f"started: {last.title} (6 of 6); resumes from its checkpoint; log: {last.log}"
        assert started == f"started: {status.cells[3].title} (4 of 6); log: {status.cells[3].log}"
        assert failed == "failed: [red]x, ft, 10 steps, seed 0: [bold]no memory"
        assert tail[0] == "before"
        assert tail[-1] == f"  full log: {status.cells[0].log}"
        assert done.startswith("done: [red]x, dp, 10 steps, seed 0: nDCG@10 0.5000; 2 of 6 cells done")


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\nb\nc\n\xff\n\n")
    assert log_tail(tmp_path / "log", 2) == "c\n\ufffd"
    assert log_tail(tmp_path / "absent") == ""
