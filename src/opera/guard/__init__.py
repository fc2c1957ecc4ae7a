"""The choice between base and fine-tuned weights."""
