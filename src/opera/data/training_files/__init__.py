"""The files that other trainers read, as they are: FlagEmbedding's and Tevatron's JSON Lines."""
