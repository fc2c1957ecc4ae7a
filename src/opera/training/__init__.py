"""Training through sentence-transformers' own trainer: batches in, observations out."""
