"""What every kind of model must be able to do."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.training_args import BaseTrainingArguments

from opera.core.errors import ModelError
from opera.core.terminal import shown


class Kind(ABC):
    """A kind of model. All members belong to the class: a kind has no state.

    Attributes:
        name: the value of ``--kind``.
        title: in messages, without an article.
        model_class: the class of its models.
        arguments_class: the class of its trainer's arguments.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    model_class: ClassVar[type[BaseModel]]
    arguments_class: ClassVar[type[BaseTrainingArguments]]


KINDS: dict[str, type[Kind]] = {}
"""The kinds by name."""


def kind_of(model: Any) -> type[Kind]:
    """Return the kind of a loaded model.

    Raises:
        ModelError: if no kind has this class of models.
    """
    for kind in KINDS.values():
        if isinstance(model, kind.model_class):
            return kind
    classes = ", ".join(kind.model_class.__name__ for kind in KINDS.values())
    raise ModelError(f"model: must be one of {classes}, got {shown(type(model).__name__)}")
