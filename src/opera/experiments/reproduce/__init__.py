"""From data to a table of the paper: which runs it takes, what they cost, and the finished table."""
