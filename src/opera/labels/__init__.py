"""Noisy labels: ranks at the first visit, the noise rate, suspicious pairs, and the review."""
