"""The streams of :mod:`opera.core.rng` for compiled loops: the same numbers, without NumPy's generator objects.

With cold caches, seeding a NumPy generator and handing it to a compiled loop costs more than the rest of a sampler's
step. Seeding and drawing here are NumPy's: SeedSequence (O'Neill's ``seed_seq_fe``), PCG64 (O'Neill 2014, XSL-RR), and
Lemire's bounded integers (2019).
"""

# Numba infers the types from the arguments; annotations of compiled functions would only repeat them.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

HIGH, LOW, STEP_HIGH, STEP_LOW, HALF, HAS_HALF = range(6)
"""The slots of a stream's state: 128 bits of state and of increment, half a number kept back, and whether one is."""

U = np.uint64
MASK, BITS, ONE = U(0xFFFFFFFF), U(32), U(1)
MULTIPLIER_HIGH, MULTIPLIER_LOW = U(0x2360ED051FC65DA4), U(0x4385DF649FCCF645)
"""PCG64's multiplier."""
POOL = 4
"""Words of SeedSequence's pool."""
FIRST_HASH, FIRST_MULTIPLIER = U(0x43B0D7E5), U(0x931E8875)
SECOND_HASH, SECOND_MULTIPLIER = U(0x8B51F9DD), U(0x58F38DED)
MIX_LEFT, MIX_RIGHT, SHIFT = U(0xCA01F9DD), U(0x4973F715), U(16)
DOUBLE_SHIFT, DOUBLE_UNIT = U(11), 2.0**-53


class Stream:
    """The numbers of ``generator(seed, name, step)``; drawing moves it on.

    Args:
        seed: seed of the run, 0 or more and below 2³².
        name: purpose of the draws.
        step: the step, pass or refresh they belong to, likewise.

    Attributes:
        state: uint64 ``[6]``, what compiled loops take.
    """

    def __init__(self, seed: int, name: str, step: int = 0) -> None:
        self.state = seeded(U(seed), _key(name), U(step))

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        """Return ``count`` integers from 0 to ``high - 1``, ``high`` at most 2³²: int64 ``[count]``."""
        return np.asarray(fill_integers(U(high), count, self.state))

    def generator(self) -> np.random.Generator:
        """Return NumPy's generator at this place of the stream, to be given back by :meth:`go_on_after`."""
        bits = np.random.PCG64(0)
        state: list[int] = self.state.tolist()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": (state[HIGH] << 64) + state[LOW], "inc": (state[STEP_HIGH] << 64) + state[STEP_LOW]},
            "has_uint32": state[HAS_HALF],
            "uinteger": state[HALF],
        }
        return np.random.Generator(bits)

    def go_on_after(self, rng: np.random.Generator) -> None:
        """Move to where the generator is now."""
        held: Any = rng.bit_generator.state
        halves = [divmod(held["state"][part], 1 << 64) for part in ("state", "inc")]
        self.state[:] = [*halves[0], *halves[1], held["uinteger"], held["has_uint32"]]


@cache
def _key(name: str) -> np.uint64:
    return U(zlib.crc32(name.encode()))


@njit(cache=True)
def seeded(seed, key, step):
    """Return the state that PCG64 has after seeding by SeedSequence([seed, key, step]); each is below 2³²."""
    # SeedSequence: hash each word of the entropy into the pool, then every word of the pool into the others.
    pool = np.empty(POOL, dtype=np.uint64)
    constant = FIRST_HASH
    for at in range(POOL):
        word = seed if at == 0 else key if at == 1 else step if at == 2 else U(0)
        pool[at], constant = _hashed(word, constant, FIRST_MULTIPLIER)
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                word, constant = _hashed(pool[source], constant, FIRST_MULTIPLIER)
                mixed = (MIX_LEFT * pool[target] - MIX_RIGHT * word) & MASK
                pool[target] = mixed ^ (mixed >> SHIFT)
    # Its eight words of output are four numbers: the first state and the increment, higher half first.
    numbers = np.empty(4, dtype=np.uint64)
    constant = SECOND_HASH
    for at in range(4):
        lower, constant = _hashed(pool[2 * at % POOL], constant, SECOND_MULTIPLIER)
        upper, constant = _hashed(pool[(2 * at + 1) % POOL], constant, SECOND_MULTIPLIER)
        numbers[at] = (upper << BITS) | lower
    # PCG64: the increment is made odd; from state 0, a step, the first state added, and a step.
    state = np.zeros(6, dtype=np.uint64)
    state[STEP_HIGH] = (numbers[2] << ONE) | (numbers[3] >> U(63))
    state[STEP_LOW] = (numbers[3] << ONE) | ONE
    _step(state)
    low = state[LOW] + numbers[1]
    state[HIGH] += numbers[0] + (ONE if low < numbers[1] else U(0))
    state[LOW] = low
    _step(state)
    return state


@njit(cache=True)
def _hashed(word, constant, multiplier):
    """Return a word of 32 bits hashed with a constant, and the next constant."""
    word ^= constant
    constant = (constant * multiplier) & MASK
    word = (word * constant) & MASK
    return word ^ (word >> SHIFT), constant


@njit(cache=True)
def _step(state):
    """Multiply the state by PCG64's multiplier and add the increment, modulo 2¹²⁸."""
    high, low = state[HIGH], state[LOW]
    # The upper half of low times the multiplier's lower half, from products of 32 bits.
    a, b = low >> BITS, low & MASK
    c, d = MULTIPLIER_LOW >> BITS, MULTIPLIER_LOW & MASK
    middle = a * d + ((b * d) >> BITS)
    other = b * c + (middle & MASK)
    upper = a * c + (middle >> BITS) + (other >> BITS)
    # The other products only reach the upper half.
    upper += high * MULTIPLIER_LOW + low * MULTIPLIER_HIGH
    lower = low * MULTIPLIER_LOW + state[STEP_LOW]
    state[HIGH] = upper + state[STEP_HIGH] + (ONE if lower < state[STEP_LOW] else U(0))
    state[LOW] = lower


@njit(cache=True)
def next_64(state):
    """Return the next 64 bits: a step, then both halves xored and rotated by the upper six bits."""
    _step(state)
    bits, turn = state[HIGH] ^ state[LOW], state[HIGH] >> U(58)
    return (bits >> turn) | (bits << ((U(64) - turn) & U(63)))


@njit(cache=True)
def next_32(state):
    """Return the next 32 bits: the lower half of a number, then its upper half."""
    if state[HAS_HALF]:
        state[HAS_HALF] = U(0)
        return state[HALF]
    bits = next_64(state)
    state[HAS_HALF], state[HALF] = ONE, bits >> BITS
    return bits & MASK


@njit(cache=True)
def uniform(state):
    """Return a float64 in [0, 1), as ``Generator.random`` does."""
    return np.float64(next_64(state) >> DOUBLE_SHIFT) * DOUBLE_UNIT


@njit(cache=True)
def below(high, state):
    """Return an integer from 0 to ``high - 1``, as ``Generator.integers`` does for ``high`` up to 2³²."""
    high = U(high)
    if high == ONE:  # nothing is drawn
        return np.int64(0)
    product = next_32(state) * high
    if (product & MASK) < high:
        least = ((ONE << BITS) - high) % high
        while (product & MASK) < least:
            product = next_32(state) * high
    return np.int64(product >> BITS)


@njit(cache=True)
def fill_integers(high, count, state):
    """Return ``count`` of :func:`below`."""
    drawn = np.empty(count, dtype=np.int64)
    for at in range(count):
        drawn[at] = below(high, state)
    return drawn
