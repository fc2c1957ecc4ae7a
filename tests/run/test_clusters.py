"""The commands of the cluster configurations in docs/scale.md."""

import re
from pathlib import Path

import pytest
import yaml

from documents import parse

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the page's only block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def kubernetes_command() -> str:
    job = yaml.safe_load(block("yaml"))
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == job["spec"]["elasticPolicy"]["minReplicas"]
    (container,) = worker["template"]["spec"]["containers"]
    volumes = {volume["name"] for volume in worker["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    return re.sub(r"\$\(.*\)", "--resume", container["command"][2])


@pytest.mark.parametrize("command", [kubernetes_command(), block("bash")], ids=["kubernetes", "slurm"])
def test_the_command_is_valid(command):
    torchrun, arguments = command.split("-m opera ")
    assert "torchrun" in torchrun
    parse(arguments.split())
