"""Faster encoding and training: stored token ids, batches without padding, and CPU kernels.

Other rooms import only these two classes. docs/encoder.md explains the rest.
"""

from opera.encoder._token_model import TokenModel
from opera.encoder._token_source import TokenSource

__all__ = ["TokenModel", "TokenSource"]
