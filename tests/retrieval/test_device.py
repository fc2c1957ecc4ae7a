"""Which device and precision are used."""

import os

import pytest
import torch

from opera.core.environment import KERNELS
from opera.core.errors import SettingError
from opera.retrieval.device import describe_device, pick_device, resolve_precision
from processes import start


def test_the_fastest_device_is_picked_and_described(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    threads = torch.get_num_threads()
    for cuda, mps, device, words in (
        (True, True, "cuda", "cuda (NVIDIA H100)"),
        (False, True, "mps", "mps"),
        (False, False, "cpu", f"cpu ({threads} thread{'s' * (threads > 1)})"),
    ):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=cuda: available)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda available=mps: available)
        assert (pick_device(), describe_device(device)) == (device, words)


@pytest.mark.parametrize(
    ("asked", "device", "transformer", "has_bf16", "expected"),
    [
        ("auto", "cuda", False, True, "fp32"),
        ("auto", "cuda", True, True, "bf16"),
        ("auto", "cuda", True, False, "fp16"),
        ("auto", "cpu", True, True, "bf16"),
        ("auto", "cpu", True, False, "fp32"),
        ("auto", "mps", True, True, "fp32"),
        ("bf16", "cpu", False, False, "bf16"),
        ("fp16", "cpu", True, True, None),
    ],
)
def test_precision_is_what_device_and_user_allow(asked, device, transformer, has_bf16, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    if expected is None:
        with pytest.raises(SettingError, match="precision=fp16: needs CUDA, but this machine has cpu"):
            resolve_precision(asked, device, transformer)
    else:
        assert resolve_precision(asked, device, transformer) == expected


def test_reproducible_is_the_processor_in_fp32(monkeypatch):
    """Nothing is computed where processors differ; tests/core has the kernels."""
    for name, value in {"OPERA_REPRODUCIBLE": "1", **KERNELS}.items():
        monkeypatch.setenv(name, value)
    assert pick_device() == "cpu"
    assert resolve_precision("auto", "cpu", is_transformer=True) == "fp32"
    assert describe_device("cpu").endswith(", reproducible)")
    with pytest.raises(SettingError, match="precision=bf16: OPERA_REPRODUCIBLE computes in fp32"):
        resolve_precision("bf16", "cpu", is_transformer=True)
    monkeypatch.delenv("MKL_CBWR")
    with pytest.raises(SettingError, match="OPERA_REPRODUCIBLE=1: "):
        pick_device()


def test_these_tests_and_the_processes_they_start_see_the_processor_that_is_named(tmp_path):
    """Whatever this machine has: tests/processors."""
    processor = os.environ["OPERA_TEST_PROCESSOR"]
    expected = (processor == "amx", "fp32" if processor == "avx2" else "bf16")
    assert (torch.cpu._is_amx_tile_supported(), resolve_precision("auto", "cpu", is_transformer=True)) == expected
    (tmp_path / "child.py").write_text(
        "import torch\nfrom opera.retrieval.device import resolve_precision\n"
        "print((torch.cpu._is_amx_tile_supported(), resolve_precision('auto', 'cpu', is_transformer=True)))\n"
    )
    child = start([str(tmp_path / "child.py")], tmp_path / "log")
    assert child.wait() == 0
    assert child.log.read_text() == f"{expected}\n"
