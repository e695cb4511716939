"""Buckets: the shares of a stream that are processed apart, each by one call per micro-batch.

Invariants:
1. Equal keys are in the same bucket, in every process, on every machine and after every restart.
2. With as many shuffle partitions as buckets, or a divisor of it, every partition gets equally many buckets.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.arrays import UInt64s

_labels: dict[tuple[str, int], tuple[str, ...]] = {}
"""Found before, by prefix and number: Spark's hash is the same in every session."""

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


def bucket_labels(spark: SparkSession, prefix: str, count: int) -> tuple[str, ...]:
    """`count` labels that begin with `prefix`, chosen so that Spark's hash puts each into a partition of its own.

    Plain 0, 1, 2, ... may all hash to one partition. About `count * ln(count)` candidates are needed on average.
    """
    if (prefix, count) not in _labels:
        _labels[prefix, count] = _find_labels(spark, prefix, count)
    return _labels[prefix, count]


def _find_labels(spark: SparkSession, prefix: str, count: int) -> tuple[str, ...]:
    if count == 1:
        return (f"{prefix}.0",)
    label = F.concat(F.lit(f"{prefix}."), F.col("id").cast("string"))
    candidates = spark.range(64 + 16 * count).select(label, F.pmod(F.hash(label), F.lit(count)))
    found: dict[int, str] = {}
    others: list[str] = []
    for candidate, partition in candidates.collect():
        if partition in found:
            others.append(candidate)
        else:
            found[partition] = candidate
    spare = iter(others)
    return tuple(found[index] if index in found else next(spare) for index in range(count))


def bucket_of(keys: list[pa.Array], rows: int, count: int) -> NDArray[np.int64]:
    """The bucket of each row by its key columns: 0 <= bucket < count. Without keys all rows are in bucket 0."""
    if count == 1 or not keys:
        return np.zeros(rows, dtype=np.int64)
    combined = np.zeros(rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in keys:
            combined = _mix(combined * np.uint64(31) + _hash_column(column))
    return (combined % np.uint64(count)).astype(np.int64)


def _hash_column(column: pa.Array) -> UInt64s:
    """Hashes the distinct values, which are few, and spreads them over the rows by their dictionary codes."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column, null_encoding="mask")
    values = encoded.dictionary
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        hashes = np.fromiter(
            (xxhash.xxh64_intdigest(text.encode()) for text in values.to_pylist()), np.uint64, len(values)
        )
    else:
        hashes = _mix(_bits(values))
    hashes = np.append(hashes, _NULL_HASH)
    codes = pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)
    spread: UInt64s = hashes[codes]
    return spread


def _bits(values: pa.Array) -> UInt64s:
    """Fixed-width values as 64 bits. All zeros are one value and so are all NaNs, as in GROUP BY."""
    if pa.types.is_floating(values.type):
        floats: NDArray[np.float64] = values.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.uint64)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    integers: NDArray[np.int64] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return integers.view(np.uint64)


def _mix(hashes: UInt64s) -> UInt64s:
    """The finalizer of SplitMix64: neighbouring integers go to unrelated buckets."""
    with np.errstate(over="ignore"):
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return hashes ^ (hashes >> np.uint64(31))
