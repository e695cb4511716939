from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.errors import CheckpointError, StorageError
from penstock.store.state import OLDEST, VERSION, decode, encode, write_atomically

DTYPES = st.one_of(
    hnp.scalar_dtypes().filter(lambda dtype: dtype.itemsize > 0),
    st.just(np.dtype([("time", "<i8"), ("limbs", "<u4", (5,)), ("inner", [("x", ">f8")])])),
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4).map(
        lambda shape: (
            np.frombuffer(np.random.default_rng(len(shape)).bytes(dtype.itemsize * math.prod(shape)), "u1")
            .view(dtype)
            .reshape(shape)
        )
    )
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(max_size=200), ARRAYS
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@settings(max_examples=300, deadline=None)
@given(tree=st.dictionaries(st.text(max_size=5), TREES, max_size=5))
def test_every_tree_comes_back_bit_for_bit(tree: dict[str, Any]) -> None:
    assert same(decode(encode(tree)), tree)


def test_awkward_values() -> None:
    tree = {
        "nan": math.nan,
        "payload": struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_BEEF))[0],
        "zero": -0.0,
        "least": 5e-324,
        "big": -(1 << 40_000),
        "array": {"array": [1], "dict": {}, "int": "0x1"},
        "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "strided": np.arange(20)[::3],
        "scalar": np.array(7.5),
        "empty": np.empty((3, 0, 2), np.float32),
        "instants": np.array(["2020-01-01", "NaT"], "datetime64[us]"),
    }
    assert same(decode(encode(tree)), tree)


def test_numpy_scalars_become_plain_ones() -> None:
    assert decode(encode({"a": np.int64(3), "b": np.bool_(True), "c": np.float32(0.1)})) == {
        "a": 3,
        "b": True,
        "c": float(np.float32(0.1)),
    }


def test_decoded_arrays_own_writable_memory() -> None:
    data = encode({"a": np.arange(5), "b": b"123"})
    array = decode(data)["a"]
    array[:] = 7
    assert array.flags.owndata
    assert decode(data)["a"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", [{1: 2}, object(), np.array([None]), {"deep": [np.array(["x", 1], object)]}])
def test_what_cannot_be_saved_is_named(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"snapshot\.state"):
        encode({"state": value})


def test_any_flipped_bit_is_noticed() -> None:
    data = encode({"name": "query", "sums": np.arange(10), "raw": b"xyz"})
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 1 << index % 8
        with pytest.raises(StorageError):
            decode(bytes(damaged))


def test_any_truncation_is_noticed() -> None:
    data = encode({"sums": np.arange(10)})
    for length in range(len(data)):
        with pytest.raises(StorageError):
            decode(data[:length])
    with pytest.raises(StorageError, match="bytes are there"):
        decode(data + b"\0")


@pytest.mark.parametrize(
    ("version", "says"), [(VERSION + 1, "reads up to"), (OLDEST - 1, "this Penstock reads 7 to 8")]
)
def test_another_version_is_told_from_damage(version: int, says: str) -> None:
    data = bytearray(encode({"a": 1}))
    data[8:12] = struct.pack("<I", version)
    checksum = xxhash.xxh3_64(bytes(data[:32]) + bytes(data[40:]))
    data[32:40] = struct.pack("<Q", checksum.intdigest())
    with pytest.raises(CheckpointError, match=f"format version {version}, .*{says}"):
        decode(bytes(data))


def test_atomic_write_replaces_or_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state"
    write_atomically(target, b"first")
    write_atomically(target, b"second")
    assert target.read_bytes() == b"second"

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError, match="No space left on device; what it held before is kept"):
        write_atomically(target, b"third")
    assert target.read_bytes() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_writing_into_a_missing_directory_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "state", b"")
