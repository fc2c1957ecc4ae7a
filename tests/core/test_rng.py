"""Streams of random numbers are named by seed, name and step."""

from itertools import product

from opera.core.rng import generator


def test_streams_of_other_seeds_names_or_steps_differ():
    names = list(product((0, 1), ("dp.queries", "dp.documents"), (0, 1)))
    drawn = {tuple(generator(*name).integers(1 << 62, size=2)) for name in names}
    assert len(drawn) == len(names)


def test_streams_are_the_same_in_every_version():
    """Runs are reproducible only while these numbers stay."""
    assert generator(0, "ft.queries").integers(1000, size=4).tolist() == [78, 594, 198, 754]
    assert generator(0, "ft.queries", 0).integers(1000, size=4).tolist() == [78, 594, 198, 754]
