"""Training through sentence-transformers' own trainer: sampler in, observations out."""

from opera.train.session import TrainingResult, train
from opera.train.trainer import training_arguments

__all__ = ["TrainingResult", "train", "training_arguments"]
