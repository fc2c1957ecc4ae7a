"""The cluster configurations of docs/scale.md, as far as one machine without a scheduler can try them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from documents import parse
from opera.runs.folder import Run
from processes import DEADLINE

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
STAND_INS = {
    # One launcher per node, and the job fails if one of them does.
    "srun": """for node in $(seq $SLURM_NNODES); do "$@" & launchers="$launchers $!"; done
for launcher in $launchers; do wait $launcher || exit 1; done""",
    "scontrol": "echo 127.0.0.1; echo 127.0.0.2",
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
}


def block(language: str) -> str:
    """Return the page's only block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_kubernetes_file_runs_a_valid_command() -> None:
    job = yaml.safe_load(block("yaml"))
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == job["spec"]["elasticPolicy"]["minReplicas"]
    (container,) = worker["template"]["spec"]["containers"]
    words = re.sub(r"\$\(.*\)", "--resume", container["command"][2]).split()
    assert words[:3] == ["torchrun", "-m", "opera"]
    parse(words[3:])
    volumes = {volume["name"] for volume in worker["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.slow
def test_the_slurm_script_trains_on_two_nodes(beir: Path, static_model: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in STAND_INS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = block("bash")
    for word, value in {"DATA": beir, "MODEL": static_model, "RUN": tmp_path / "run", "/shared": tmp_path}.items():
        script = re.sub(rf"(?<![\w-]){word}(?!\w)", str(value), script)
    (tmp_path / "job.sh").write_text(script.replace("global_batch_size=64", "global_batch_size=8 --steps 4"))
    job = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "1", "GPUS": "1", "PORT": port, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sh")],
        env={**os.environ, "OMP_NUM_THREADS": "1", **job},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run.open(tmp_path / "run")
    assert run.record.processes == 2
    assert len(run.trace()) == 4
