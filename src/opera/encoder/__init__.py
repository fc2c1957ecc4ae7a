"""Faster encoding and training: stored token ids, batches without padding, and CPU kernels."""
