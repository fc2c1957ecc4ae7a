"""The table of bad inputs: what a row is, how its files are made, and what each must end in.

A file ``KIND_rows.py`` beside this one holds a list ``ROWS``; ``test_bad_inputs.py`` finds it and runs every row::

    ROWS = [
        *table("evaluate data --model model", '''          # a command; each line is what it is given, and the message
    --split dev => data: has no split 'dev'; pass --split test or --split train
        '''),
        Bad("evaluate data --model model", "data/qrels/test.tsv:2: grade must be ..., got 'high'",
            edit("data/qrels/test.tsv", 2, "test0\td1\thigh")),    # how the folder is made bad; several in a row
    ]

Every row starts in a fresh folder that holds ``data`` (a small BEIR data set: d0..., train0..., test0...) and ``model``
(a static model). ``with_run`` and ``with_grid`` add a finished run in ``run``, or a finished grid in ``grid``.
"""

import importlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent

MADE = Path("/nowhere")  # where the test has made ``data``, ``model``, ``run`` and ``grid``
Make = Callable[[Path], object]  # changes something in the folder that a row runs in


class Bad:
    """A command line after ``opera``, or its words; the whole message, or a pattern; what makes the folder bad."""

    def __init__(self, command: str | list[str], message: str | re.Pattern[str], *make: Make) -> None:
        self.words = shlex.split(command) if isinstance(command, str) else command
        self.message, self.make = message, make

    def message_fits(self, text: str) -> bool:
        """Whether a message is the one that the row names."""
        return text == self.message if isinstance(self.message, str) else self.message.fullmatch(text) is not None


def table(command: str, text: str, make: Callable[[str], Make] | None = None, start: str = "") -> list[Bad]:
    """Make a row of each line ``GIVEN => MESSAGE``, or ``GIVEN =~ PATTERN``; four spaces continue a line.

    ``{given}`` in a message is what is given as Python writes it, and ⏎ is a line break. ``make`` makes the folder bad
    with what is given; without it, what is given are more words of the command. All messages begin with ``start``.
    """
    rows = []
    for line in text.strip("\n").removesuffix("\n    ").replace("\n    ", " ").split("\n"):
        given, sign, message = re.split(r"(?: |^)(=>|=~) ", line, maxsplit=1)
        given = given.replace("⏎", "\n")
        said = start + message.replace("{given}", repr(given)).replace("⏎", "\n")
        words = command if make else f"{command} {given}"
        rows.append(Bad(words, said if sign == "=>" else matching(said), *([make(given)] if make else [])))
    return rows


def matching(pattern: str) -> re.Pattern[str]:
    """Return a pattern for the whole of a message; keep it tight: the place, the rule and the value."""
    return re.compile(pattern, re.DOTALL)


def with_run(folder: Path) -> None:
    """Copy a finished run to ``run``; it trained ``ft`` on ``data`` from ``model`` in 4 steps."""
    shutil.copytree(MADE / "run", folder / "run")


def with_grid(folder: Path) -> None:
    """Copy a finished grid to ``grid``: ``ft`` and ``rp:k=0.5`` on ``data``, seed 0, 4 steps."""
    shutil.copytree(MADE / "grid", folder / "grid")


def all_rows() -> list[Bad]:
    """Return the rows of every ``*_rows.py`` in this folder."""
    names = sorted(path.stem for path in HERE.glob("*_rows.py"))
    return [row for name in names for row in importlib.import_module(f"bad_inputs.{name}").ROWS]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode of everything below a folder, and the bytes of a file or the target of a link."""
    contents = {}
    for path in folder.rglob("*"):
        mode, content = path.lstat().st_mode, b""
        if stat.S_ISREG(mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(mode):
            content = os.fsencode(path.readlink())
        contents[str(path.relative_to(folder))] = mode, content
    return contents


def write(name: str, text: str | bytes) -> Make:
    """Write a file, and the folders above it."""

    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    return make


def edit(name: str, line: int, text: str | bytes) -> Make:
    """Put a line in place of line ``line``, 1-based, of a file that is there."""

    def make(folder: Path) -> None:
        lines = (folder / name).read_bytes().split(b"\n")
        lines[line - 1] = text.encode() if isinstance(text, str) else text
        (folder / name).write_bytes(b"\n".join(lines))

    return make


def remove(name: str) -> Make:
    """Remove a file or a folder."""
    return lambda folder: shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()


def make_folder(name: str) -> Make:
    """Make an empty folder."""
    return lambda folder: (folder / name).mkdir(parents=True)


def link(name: str, target: str) -> Make:
    """Make a symbolic link, in place of what is there; ``target`` as the link holds it."""

    def make(folder: Path) -> None:
        if (folder / name).exists():
            remove(name)(folder)
        (folder / name).symlink_to(target)

    return make


def pipe(name: str) -> Make:
    """Make a named pipe, in place of what is there: whoever opens it waits for ever."""

    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make
