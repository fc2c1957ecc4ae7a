"""Softmax with dropout, and dropout, compiled by numba for CPUs.

The functions read their rows only once, but torch reads them several times. Arrays are float32, or
bfloat16 as uint16 bits. Arithmetic is float32.
"""

# The functions have no annotations, because numba infers the types.

import math

import numpy as np
import torch
from numba import njit, prange, types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from opera.core.arrays import cached_njit


def as_array(tensor: Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    """View a CPU tensor as an array: float32, or the bits of bfloat16 as uint16."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy()
    return tensor.numpy()


F, U, S, H = np.float32, np.uint32, np.int32, np.uint16


def _get(row, column):
    """Read a number of a row as float32."""


def _put(row, column, number):
    """Write a float32 to a row, rounded to nearest if the row is bfloat16."""


@overload(_get)
def _get_typed(row, column):
    if row.dtype == types.uint16:
        return lambda row, column: U(U(row[column]) << U(16)).view(F)
    return lambda row, column: row[column]


@overload(_put)
def _put_typed(row, column, number):
    if row.dtype != types.uint16:

        def put_float(row, column, number):
            row[column] = number

        return put_float

    def put_bfloat(row, column, number):
        bits = F(number).view(U)
        row[column] = H(U(bits + U(0x7FFF) + U((bits >> U(16)) & U(1))) >> U(16))

    return put_bfloat


@njit(fastmath=True, error_model="numpy", inline="always")
def _exp(x):
    """Return e^x for x <= 0, to a few roundings: 2^n times a polynomial (Cephes' expf)."""
    x = max(x, F(-87.0))
    n = np.floor(x * F(1.44269504) + F(0.5))
    r = x - n * F(0.693359375) + n * F(2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    p = p * r * r + r + F(1)
    return p * U(U(S(n) + S(127)) << U(23)).view(F)


@njit(fastmath=True, error_model="numpy", inline="always")
def _mixed(bits):
    """Hash 32 bits, like the finaliser of MurmurHash3."""
    bits = U(bits ^ (bits >> U(16)))
    bits = U(bits * U(0x85EBCA6B))
    bits = U(bits ^ (bits >> U(13)))
    bits = U(bits * U(0xC2B2AE35))
    return U(bits ^ (bits >> U(16)))


@njit(fastmath=True, error_model="numpy", inline="always")
def _row_key(row, key):
    """Return two keys for the random numbers of a row."""
    first = _mixed(U(U(row) ^ key))
    return first, _mixed(U(first + U(row)))


@njit(fastmath=True, error_model="numpy", inline="always")
def _survives(first, second, column, threshold):
    """Whether dropout keeps a number, with probability 1 - threshold / 2^32."""
    return U(_mixed(U(first + U(column))) + second) >= threshold


@njit(fastmath=True, error_model="numpy", inline="always")
def _keys_of(query, length, is_causal):
    """Return how many keys a query attends to. Attention starts at the first key."""
    return min(query + 1, length) if is_causal else length


@cached_njit(parallel=True, fastmath=True, error_model="numpy")
def softmax_with_dropout(scores, log_sums, lengths, is_causal, scale, threshold, key, first_row):
    """Replace scores by attention probabilities with dropout, in place.

    A unit is one head of one text.

    Args:
        scores: ``[units, L, L]``, products of queries and keys; padding becomes 0.
        log_sums: float32 ``[units, L]``, filled with the logarithm of each query's sum.
        lengths: int32 ``[units]``, tokens of each text.
        is_causal: whether a token attends only to itself and earlier tokens.
        scale: multiplies the scores.
        threshold: dropout rate times 2^32.
        key: seed of the dropout mask.
        first_row: number of the first row among all blocks, so that rows have different masks.
    """
    units, width, _ = scores.shape
    rescale = F(1) / (F(1) - F(threshold) / F(4294967296.0))
    for unit in prange(units):
        length = lengths[unit]
        numbers = np.empty(width, np.float32)
        for query in range(width):
            row = scores[unit, query]
            keys = _keys_of(query, length, is_causal) if query < length else 0
            if keys > 0:
                highest, total = F(-np.inf), F(0)
                for k in range(keys):
                    score = _get(row, k) * scale
                    numbers[k] = score
                    highest = score if score > highest else highest
                for k in range(keys):
                    power = _exp(numbers[k] - highest)
                    numbers[k] = power
                    total += power
                log_sums[unit, query] = highest + math.log(total)
                weight = rescale / total
                if threshold == 0:
                    for k in range(keys):
                        _put(row, k, numbers[k] * weight)
                else:
                    one, two = _row_key(first_row + unit * width + query, key)
                    for k in range(keys):
                        _put(
                            row,
                            k,
                            numbers[k] * (weight if _survives(one, two, k, threshold) else F(0)),
                        )
            for k in range(keys, width):
                row[k] = 0


@cached_njit(parallel=True, fastmath=True, error_model="numpy")
def softmax_with_dropout_backward(
    scores, gradients, log_sums, totals, lengths, is_causal, scale, threshold, key, first_row
):
    """Replace scores by probabilities, and gradients of these by gradients of the scores.

    Arguments are as in :func:`softmax_with_dropout`. ``totals``, float32 ``[units, L]``, has each
    query's sum of gradients times probabilities.
    """
    units, width, _ = scores.shape
    rescale = F(1) / (F(1) - F(threshold) / F(4294967296.0))
    for unit in prange(units):
        length = lengths[unit]
        for query in range(width):
            row, gradient = scores[unit, query], gradients[unit, query]
            keys = _keys_of(query, length, is_causal) if query < length else 0
            log_sum, total = log_sums[unit, query], totals[unit, query]
            one, two = _row_key(first_row + unit * width + query, key)
            for k in range(keys):
                probability = _exp(_get(row, k) * scale - log_sum)
                factor = rescale if _survives(one, two, k, threshold) else F(0)
                back = probability * (factor * _get(gradient, k) - total) * scale
                _put(row, k, probability * factor)
                _put(gradient, k, back)
            for k in range(keys, width):
                row[k] = 0
                gradient[k] = 0


@cached_njit(parallel=True, fastmath=True, error_model="numpy")
def drop(numbers, out, threshold, key):
    """Write ``numbers [rows, width]`` to ``out``, with dropout of rate ``threshold / 2^32``."""
    rows, width = numbers.shape
    rescale = F(1) / (F(1) - F(threshold) / F(4294967296.0))
    for number in prange(rows):
        row, target = numbers[number], out[number]
        one, two = _row_key(number, key)
        for k in range(width):
            _put(target, k, _get(row, k) * (rescale if _survives(one, two, k, threshold) else F(0)))
