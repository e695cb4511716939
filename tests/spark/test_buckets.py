"""Buckets: equal keys together, labels that spread over Spark's partitions."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.spark.buckets import bucket_labels, bucket_of


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 32])
def test_every_label_has_a_partition_of_its_own(spark: SparkSession, count: int) -> None:
    labels = bucket_labels(spark, "share", count)
    rows = spark.createDataFrame([(label,) for label in labels], "bucket string").repartition(count, "bucket")
    partitions = {row[0] for row in rows.select(F.spark_partition_id()).collect()}
    assert len(set(labels)) == count
    assert partitions == set(range(count))


KEYS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.string(): st.text(max_size=5),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(),
    pa.date32(): st.integers(-10000, 10000),
    pa.timestamp("us", tz="UTC"): st.integers(-(2**50), 2**50),
}


@given(st.data(), st.sampled_from(sorted(KEYS, key=str)), st.integers(1, 9))
def test_equal_keys_are_together_in_every_batch(data: st.DataObject, kind: pa.DataType, count: int) -> None:
    values = data.draw(st.lists(st.none() | KEYS[kind], min_size=1, max_size=20))
    whole = bucket_of([pa.array(values, kind)], len(values), count)
    assert ((whole >= 0) & (whole < count)).all()
    for value, bucket in zip(values, whole.tolist(), strict=True):
        alone = bucket_of([pa.array([value], kind)], 1, count)
        assert alone.tolist() == [bucket]


def test_zeros_and_nans_are_one_key_each() -> None:
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    buckets = bucket_of([pa.array([0.0, -0.0, math.nan, -math.nan, other_nan])], 5, 1000).tolist()
    assert buckets[0] == buckets[1]
    assert buckets[2] == buckets[3] == buckets[4]


def test_keys_spread_evenly() -> None:
    for keys in (pa.array(range(8000)), pa.array([f"agent {i}" for i in range(8000)])):
        shares = np.bincount(bucket_of([keys], 8000, 8), minlength=8)
        assert shares.min() > 850
        assert shares.max() < 1150


def test_all_columns_of_a_key_count() -> None:
    first, second = pa.array([1, 1, 2, 2]), pa.array(["a", "b", "a", "b"])
    assert len(set(bucket_of([first, second], 4, 1 << 40).tolist())) == 4


def test_without_keys_there_is_one_bucket() -> None:
    assert bucket_of([], 3, 8).tolist() == [0, 0, 0]
