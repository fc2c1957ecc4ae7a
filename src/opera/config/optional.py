"""Optimizers and logging services that need a package of their own: is it installed? Asked before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from opera.core.errors import MissingExtraError
from opera.core.terminal import shown

_TORCH = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")
_BITS = (
    "ademamix", "adamw_bnb_8bit", "adamw_8bit", "ademamix_8bit", "lion_8bit", "lion_32bit", "paged_adamw_32bit",
    "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit",
    "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit",
)  # fmt: skip
_FREE = ("schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd")

OPTIMIZERS: Mapping[str, str] = {
    **dict.fromkeys(_TORCH, ""),
    **dict.fromkeys(_BITS, "bitsandbytes"),
    **dict.fromkeys(_FREE, "schedulefree"),
    "adamw_torch_4bit": "torchao",
    "adamw_torch_8bit": "torchao",
    "adamw_torch_xla": "torch_xla",
    "adamw_torch_npu_fused": "torch_npu",
    "adamw_anyprecision": "torchdistx",
    "grokadamw": "grokadamw",
    "stable_adamw": "optimi",
    "lomo": "lomo_optim",
    "adalomo": "lomo_optim",
}
"""Optimizers by their names in transformers, and the module that each needs. GaLore and APOLLO are left out: they train
some layers only, which no setting names."""

SERVICES: Mapping[str, str] = {
    "none": "",
    "all": "",
    "azure_ml": "azureml",
    "clearml": "clearml",
    "codecarbon": "codecarbon",
    "comet_ml": "comet_ml",
    "dagshub": "dagshub",
    "dvclive": "dvclive",
    "flyte": "flytekit",
    "kubeflow": "kubeflow",
    "mlflow": "mlflow",
    "neptune": "neptune",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Values of ``report_to``, and the module that each needs; ``all`` takes what is installed."""

PACKAGES = {
    "lomo_optim": "lomo-optim",
    "optimi": "torch-optimi",
    "comet_ml": "comet-ml",
    "azureml": "azureml-core",
}
"""Where the package has another name than its module."""


def service_names(report_to: str) -> list[str]:
    """The services that ``report_to`` stands for."""
    if report_to == "all":
        return [
            name for name, module in SERVICES.items() if module and find_spec(module) is not None
        ]
    return [] if report_to == "none" else [report_to]


def check_known(value: str, known: Mapping[str, str], kind: str) -> str:
    """Check that an optimizer or a service is known; for pydantic, which turns the ValueError into a message."""
    if value not in known:
        examples = ", ".join(list(known)[:5])
        raise ValueError(f"must be {kind} that OPERA offers, such as {examples}")
    return value


def check_installed(optim: str, report_to: str, trainer: Mapping[str, Any] | None = None) -> None:
    """Check that the packages of the optimizer, the logging service and DeepSpeed are installed. Imports none.

    Args:
        optim: the optimizer.
        report_to: the logging service.
        trainer: fields of the trainer's arguments.

    Raises:
        MissingExtraError: with the command that installs the package.
    """
    needed = [("optim", optim, OPTIMIZERS[optim]), ("report_to", report_to, SERVICES[report_to])]
    if trainer is not None and (config := trainer.get("deepspeed")) is not None:
        needed.append(("--trainer deepspeed", str(config), "deepspeed"))
    for setting, value, module in needed:
        if module and find_spec(module) is None:
            package = PACKAGES.get(module, module)
            raise MissingExtraError(
                f"{setting}={shown(value)[1:-1]}: needs the package {package}, which is not installed: "
                f"pip install {package}"
            )
