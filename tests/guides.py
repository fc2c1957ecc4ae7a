"""Run the code blocks of a page of docs/, in their order, in one folder and one process.

- ``python`` blocks share their names, as in one session;
- a block with ``title="NAME"`` is written to that file;
- ``bash`` blocks hold ``opera`` commands, run in this process, and a few commands of the shell, run as they are;
- ``console`` blocks hold commands after ``$``, and the lines that they print; ``...`` stands for any text;
- ``text``, ``json`` and ``html`` blocks show something and are not run.

A comment ``<!-- not run: REASON -->`` above a block leaves it out; its ``opera`` commands must be valid all the same.
"""

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import Done
from documents import parse

BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>[^\n]*) -->\n+)?^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = ("text", "json", "html", "")
OF_THE_SHELL = ("cat", "head", "ls", "mkdir", "gunzip", "wc")

REASONS = ("needs a network", "needs docker", "needs a person", "takes minutes")
"""Why a block may be left out."""

Run = Callable[[list[str]], Done]
"""Runs one ``opera`` command, given its arguments."""


@dataclass(frozen=True)
class Block:
    """One block of a page: where it begins, its language, the file to write it to, its text, why it is not run."""

    place: str
    language: str
    title: str
    text: str
    reason: str

    def commands(self) -> list[list[str]]:
        """Return the commands of a block for the shell, as words."""
        lines = re.sub(r" *\\\n *", " ", self.text).splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        words = (shlex.split(line, comments=True) for line in lines)
        return [each for each in words if each]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text, blocks = page.read_text(encoding="utf-8"), []
    for found in BLOCK.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        body = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        place = f"{page.name}:{text.count(chr(10), 0, found.start('info')) + 1}"
        blocks.append(Block(place, language, title[1] if title else "", body, found["reason"] or ""))
    return blocks


def run_page(page: Path, folder: Path, opera: Run, names: dict[str, Any]) -> None:
    """Run the blocks of a page; ``names`` are those that its Python blocks begin with."""
    for block in blocks_of(page):
        if block.reason:
            _check_commands(block)
        elif block.title:
            place = folder / block.title
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
        elif block.language in ("bash", "console"):
            _run_commands(block, folder, opera)
        else:
            assert block.language in SHOWN, f"{block.place}: what is done with {block.language!r}?"


def _check_commands(block: Block) -> None:
    assert block.reason.startswith(REASONS), f"{block.place}: {block.reason}"
    for words in block.commands() if block.language in ("bash", "console") else ():
        if "opera" in words and words[0] not in ("pip", "docker", "git"):
            parse(words[words.index("opera") + 1 :])


def _run_commands(block: Block, folder: Path, opera: Run) -> None:
    printed = ""
    for words in block.commands():
        if words[0] == "opera":
            done = opera(words[1:])
        else:
            assert words[0] in OF_THE_SHELL, f"{block.place}: {words[0]} is not run here; say why above the block"
            ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        failed = block.language == "bash" and done.returncode != 0
        assert not failed, f"{block.place}: {' '.join(words)}\n{done.stdout}{done.stderr}"
        printed += f"{done.stderr}{done.stdout}\n"
    for line in block.text.splitlines() if block.language == "console" else ():
        parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("...")]
        shown = line.startswith("$ ") or re.search(r"[\s\S]*?".join(parts), printed)
        assert shown, f"{block.place}: not printed: {line}\n{printed}"
