"""Corpus text made safe to print."""

from __future__ import annotations

from opera.cli.printing.console import one_line


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert one_line("a\x1b]0;owned\x07b\n\tc [red]d[/red]") == "a ]0;owned b c [red]d[/red]"
