"""How fast a model reads texts: token ids kept on disk, batches without padding, and the model's
own computation."""
