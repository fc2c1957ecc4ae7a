"""Training through sentence-transformers' own trainer: sampler in, observations out."""

from opera.train.session import TrainingResult, train

__all__ = ["TrainingResult", "train"]
