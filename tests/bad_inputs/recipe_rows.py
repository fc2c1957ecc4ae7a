"""Bad recipes, and models whose folder cannot be used."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from safetensors.numpy import load_file, save_file

from bad_inputs.table import Bad, Make, pipe, write


def recipe(name: str, content: str | bytes, message: str) -> Bad:
    """A row whose recipe is ``content``."""
    command = "train data --model model --config r.yaml --out run"
    return Bad(f"recipe: {name}", command, f"--config r.yaml: {message}", write("r.yaml", content))


def change_weights(value: float) -> Make:
    """Put a value into the table of the model."""

    def make(folder: Path) -> None:
        (path,) = folder.rglob("model/**/*.safetensors")
        weights = load_file(path)
        weights["embedding.weight"][7, 3] = value
        save_file(weights, path)

    return make


TAGS = "tags such as !!int are not read; leave the tag out, or quote the value"
ALIASES = "anchors and aliases (& and *) are not read; repeat the value, or quote it"
BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghijkl"))
RECIPES = [
    recipe("a list", "- seed", "must map setting names to values, got ['seed']"),
    recipe("empty", "", "must map setting names to values, got None"),
    recipe("a number as name", "7: 1", "names of settings must be text, got 7"),
    recipe("a list as name", "? [a]\n: 1", "keys must be plain values, and one is a list or a mapping"),
    recipe("an open list", "seed: [1", "not YAML (line 1: expected ',' or ']', but got '<stream end>')"),
    recipe("a tab", "seed:\n\t- 1", "not YAML (line 2: found character '\\t' that cannot start any token)"),
    recipe(
        "a name twice",
        "seed: 1\nseed: 2",
        'not YAML (line 2: found duplicate key "seed" with value "2" (original value: "1"))',
    ),
    recipe("two documents", "seed: 1\n---\nseed: 2", "not YAML (line 2: but found another document)"),
    recipe("an alias bomb", BOMB, f"line 1: {ALIASES}"),
    recipe("an alias of itself", "a: &a [*a]", f"line 1: {ALIASES}"),
    *[
        recipe(f"the tag {value.split()[0]}", f"seed: 1\nseed: {value}", f"line 2: {TAGS}")
        for value in (
            "!!int foo",
            "!!float x",
            "!!bool maybe",
            "!!timestamp x",
            "!!binary ???",
            "!!set {a, b}",
            "!!omap [a: 1]",
            "!!python/object/apply:os.system [id]",
            "!mine x",
            "! x",
        )
    ],
    recipe("YAML 1.1", "%YAML 1.1\n---\nseed: on", "line 2: must be YAML 1.2; remove the directive %YAML"),
    recipe("2,000 lists", "seed: " + "[" * 2000, "line 1: nested more than 20 deep"),
    recipe("5,000 digits", "seed: " + "9" * 5000, "holds a number that is none, or one of more than 1,024 bits"),
    recipe(
        "5,000 hexadecimal digits",
        f"seed: 0x{'f' * 5000}",
        "holds a number that is none, or one of more than 1,024 bits",
    ),
    recipe("a megabyte", "#" * 10**6, "has 1,000,000 characters; at most 20,000 are read"),
    recipe(
        "a NUL",
        "seed: '\0'",
        "not YAML (unacceptable character #x0000: special characters are not allowed in "
        '"<unicode string>", position 7)',
    ),
    recipe("UTF-16", "seed: 1".encode("utf-16"), "line 1 is not UTF-8; convert the file to UTF-8"),
    recipe("Latin-1", b"seed: 1\n# caf\xe9", "line 2 is not UTF-8; convert the file to UTF-8"),
    recipe(
        "a setting that is none",
        "temprature: 1",
        "unknown setting 'temprature'; did you mean 'temperature'? (opera train --help-settings lists all)",
    ),
    Bad(
        "recipe: no file and no name of OPERA's",
        "train data --model model --config fiqua --out run",
        "--config fiqua: no such file, and OPERA has no recipe of that name; did you mean 'fiqa'?",
    ),
    Bad(
        "recipe: a mistake in the second of two",
        "compare data --model model --config fiqa --config r.yaml --out grid",
        "--config r.yaml: max_steps: must be a whole number, got 'many'",
        write("r.yaml", "max_steps: many"),
    ),
]


NO_WEIGHTS = (
    "model: the weights '0.embedding.weight' hold values that are no numbers, or above 1e+15; use another copy of it"
)
MODELS = [
    Bad("model: NaN in the weights", "evaluate data --model model", NO_WEIGHTS, change_weights(float("nan"))),
    Bad("model: infinity in the weights", "search data x --model model", NO_WEIGHTS, change_weights(float("-inf"))),
    Bad(
        "model: a pipe in its folder",
        "evaluate data --model model",
        "model/x.json: must be a file, but is a named pipe",
        pipe("model/x.json"),
    ),
]

ROWS = [*RECIPES, *MODELS]
