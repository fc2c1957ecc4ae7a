"""Paths that no file system can have, at every door that takes one."""

from __future__ import annotations

from bad_inputs.table import Bad, link, with_grid

DOORS = {
    "DATA": "evaluate PATH --model model",
    "--model": "evaluate data --model PATH",
    "--out": "train data --model model --out PATH",
    "--config": "train data --model model --out run --config PATH",
    "--query-vectors": "train data --out run --document-vectors d.npy --query-vectors PATH",
    "--run-file": "evaluate data --model model --run-file PATH",
    "GRID|RUN": "report PATH",
    "--grid": "paper --table main --grid PATH",
    "--tables": "report grid --tables PATH",
}
"""A command line for each option or argument that takes a path; ``PATH`` stands for it."""

LONG = "n" * 300
CUT = rf"{'n' * 50}…{'n' * 49}"

WRONG = {
    "nothing": ("", "NAME: must not be empty"),
    "white space": (" ", "NAME: must not be empty"),
    "a NUL": ("a\0b", "NAME: must not hold a NUL character, got 'a\\x00b'"),
    "bytes that are no text": ("caf\udce9", "NAME: must be text in UTF-8, got 'caf\\udce9'; rename the file"),
    "a user that is not there": ("~no-such-user/x", "NAME ~no-such-user/x: there is no such user"),
    "a name too long": (LONG, f"NAME {CUT}: the name is too long for this file system"),
    "links in a circle": ("circle/x", "NAME circle/x: its links lead in a circle"),
    "control characters": ("circle\x1b[2J/x", "NAME circle\\x1b[2J/x: its links lead in a circle"),
}
"""What is wrong, the path, and the message."""

ROWS = [
    Bad(
        f"path: {door} is {wrong}",
        [path if word == "PATH" else word for word in command.split()],
        message.replace("NAME", door),
        with_grid,
        link("circle", "circle"),
        link("circle\x1b[2J", "circle"),
    )
    for door, command in DOORS.items()
    for wrong, (path, message) in WRONG.items()
] + [
    Bad(
        f"path: {setting} is {wrong}",
        ["train", "data", "--out", "run", "--set", f"{setting}={path or repr(path)}", "--set", f"{other}=x.npy"],
        message,
    )
    for setting, other in (("query_vectors", "document_vectors"), ("document_vectors", "query_vectors"))
    for wrong, path, message in (
        ("nothing", "", f"{setting}: must not be empty"),
        ("a name too long", LONG, f"{setting} {CUT}: the name is too long for this file system"),
        ("a user that is not there", "~no-such-user/x", f"{setting} ~no-such-user/x: there is no such user"),
    )
]
