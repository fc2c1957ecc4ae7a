"""What ``opera`` loads when this package is installed: data sets and recipes of the paper."""
