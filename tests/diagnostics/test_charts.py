"""Charts."""

from __future__ import annotations

from pathlib import Path

from opera.diagnostics.charts import write_theory_chart
from opera.diagnostics.theory import World, sweeps


def test_charts_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    swept = sweeps(World(repeats=20, documents=20))
    assert set(swept) == {"noise", "auc", "k", "beta"}
    for suffix in (".svg", ".png", ".pdf"):
        paths = [tmp_path / f"{number}{suffix}" for number in range(2)]
        for path in paths:
            write_theory_chart(path, swept, "title")
        assert paths[0].read_bytes() == paths[1].read_bytes()
