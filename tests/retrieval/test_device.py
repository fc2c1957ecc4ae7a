"""Which device and precision are used."""

from __future__ import annotations

import pytest
import torch

from opera.core import environment as reproducible
from opera.core.errors import SettingError
from opera.retrieval import device as module
from opera.retrieval.device import Precision, autocast, describe_device, pick_device, resolve_precision


@pytest.mark.parametrize(
    ("cuda", "mps", "device"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_the_fastest_device_is_picked(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, device: str) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert pick_device() == device


def test_devices_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    threads = torch.get_num_threads()
    assert describe_device("cpu") == f"cpu ({threads} thread{'s' * (threads > 1)})"
    assert describe_device("cuda") == "cuda (NVIDIA H100)"
    assert describe_device("mps") == "mps"


class TestPrecision:
    @pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
    def test_a_static_model_stays_in_fp32(self, device: str) -> None:
        assert resolve_precision("auto", device, is_transformer=False) == "fp32"

    @pytest.mark.parametrize(
        ("device", "has_bf16", "precision"),
        [
            ("cuda", True, "bf16"),
            ("cuda", False, "fp16"),
            ("cpu", True, "bf16"),
            ("cpu", False, "fp32"),
            ("mps", True, "fp32"),
        ],
    )
    def test_a_transformer_takes_what_the_device_has(
        self, monkeypatch: pytest.MonkeyPatch, device: str, has_bf16: bool, precision: str
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
        monkeypatch.setattr(module, "_cpu_has_bf16", lambda: has_bf16)
        assert resolve_precision("auto", device, is_transformer=True) == precision

    def test_what_the_user_chose_is_taken_or_refused(self) -> None:
        assert resolve_precision("fp32", "cuda", is_transformer=True) == "fp32"
        assert resolve_precision("bf16", "cpu", is_transformer=False) == "bf16"
        assert resolve_precision("fp16", "cuda", is_transformer=True) == "fp16"
        with pytest.raises(SettingError, match="precision=fp16: needs CUDA, this machine has cpu"):
            resolve_precision("fp16", "cpu", is_transformer=True)


class TestReproducible:
    """With ``OPERA_REPRODUCIBLE`` nothing is computed where processors differ; tests/core has the kernels."""

    @pytest.fixture(autouse=True)
    def _asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPERA_REPRODUCIBLE", "1")

    def test_it_is_the_processor_in_fp32(self) -> None:
        assert pick_device() == "cpu"
        assert resolve_precision("auto", "cpu", is_transformer=True) == "fp32"
        assert describe_device("cpu").endswith(", reproducible)")

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_half_precision_is_refused(self, precision: Precision) -> None:
        with pytest.raises(SettingError, match=f"precision={precision}: OPERA_REPRODUCIBLE computes in fp32"):
            resolve_precision(precision, "cpu", is_transformer=True)

    def test_what_cannot_be_had_is_said_before_anything_is_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reproducible, "_problems", ["torch was imported before"])
        with pytest.raises(SettingError, match="OPERA_REPRODUCIBLE=1: torch was imported before"):
            pick_device()


def test_autocast_computes_in_the_resolved_precision() -> None:
    one = torch.ones(2, 2)
    with autocast("bf16", "cpu"):
        assert (one @ one).dtype == torch.bfloat16
    with autocast("fp32", "cpu"):
        assert (one @ one).dtype == torch.float32
