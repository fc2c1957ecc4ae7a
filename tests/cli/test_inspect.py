"""``opera inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opera
from commands import Opera


def test_json_and_text_are_those_of_the_python_function(run_opera: Opera, beir: Path, static_model: Path) -> None:
    command = ("inspect", beir, "--model", static_model)
    seen = opera.inspect(beir, model=static_model, show=2)
    done = run_opera(*command, "--show", 2, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(seen.as_dict()))
    without = run_opera(*command, "--show", 0)
    assert without.returncode == 0, without.stderr
    assert "The most suspicious training pairs" not in without.stdout
    assert seen.advice.method in without.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["BEIR", "--model", "absent/model/folder"], "no such model folder"),
        (["absent", "--model", "MODEL"], "absent: no such file or folder"),
        (["BEIR", "--model", "MODEL", "--relevant-grade", "9"], "nothing to train on"),
        (["BEIR", "--model", "MODEL", "--show", "-1"], "--show"),
    ],
)
def test_wrong_input_exits_2_with_one_message(
    run_opera: Opera, beir: Path, static_model: Path, arguments: list[str], message: str
) -> None:
    places = {"BEIR": beir, "MODEL": static_model}
    done = run_opera("inspect", *(places.get(argument, argument) for argument in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
