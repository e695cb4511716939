"""The one format of state: a tree of plain values and arrays to bytes and back, for every runtime.

    header    magic, format version, length of the whole, length of the manifest, checksum over all the rest
    manifest  JSON: components with their versions, and the tree, where arrays and byte strings refer to buffers
    buffers   raw, each aligned to 64 bytes

Values are str, int, float, bool, None, bytes, numpy arrays of fixed width, lists and dicts with str keys. In the
manifest every JSON object has exactly one key that says what it stands for, so a dict of the user's can never be
taken for a reference. The first four fields and what the checksum covers stay the same in every format version:
damage and a newer version can always be told apart.

Why: docs/decisions/versions-of-components.md
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from penstock.components import Saved
from penstock.errors import CheckpointError, StorageError

MAGIC = b"PENSTOCK"
VERSION = 8
"""Of the layout below. What components save in it has versions of its own."""
OLDEST = 7
"""The first that is read: it names no components, and all of them are version 1."""
_HEADER = struct.Struct("<8sIIQQQ")  # magic, version, reserved, total length, manifest length, checksum
_CHECKED = _HEADER.size - 8
_ALIGNMENT = 64

Bytes = bytes | memoryview


def encode(snapshot: dict[str, Any]) -> bytes:
    """The snapshot as bytes.

    >>> decode(encode({"counts": np.arange(3), "name": "q1"}))
    {'counts': array([0, 1, 2]), 'name': 'q1'}
    """
    writer = Writer()
    return b"".join(sealed(packed(writer.manifest(snapshot)), writer.chunks, writer.length))


def packed(content: dict[str, Any]) -> bytes:
    """The manifest of a writer as bytes."""
    return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def sealed(manifest: bytes, buffers: Sequence[Bytes], length: int) -> list[Bytes]:
    """A packed manifest and its buffers of `length` bytes, with the header: all that is to be kept, in order."""
    size = sealed_size(manifest, length)
    header = _HEADER.pack(MAGIC, VERSION, 0, size, len(manifest), 0)[:_CHECKED]
    content = [manifest, bytes(size - length - _HEADER.size - len(manifest)), *buffers]
    checksum = xxhash.xxh3_64(header)
    for chunk in content:
        checksum.update(chunk)
    return [header + struct.pack("<Q", checksum.intdigest()), *content]


def sealed_size(manifest: bytes, length: int) -> int:
    """How many bytes `sealed` gives."""
    return _aligned(_HEADER.size + len(manifest)) + length


def decode(data: Bytes) -> dict[str, Any]:
    """The inverse of `encode`; arrays own writable memory. Damaged data raises `StorageError`. Components come back as
    they were written, whatever their versions."""
    saved = opened(data)
    if saved.follows is not None:
        raise CheckpointError("this is a part of saved state: what has changed since an earlier part, without the rest")
    root = Reader(saved).value(saved.tree)
    assert isinstance(root, dict)
    return root


class Opened(NamedTuple):
    """What `sealed` wrote: the node of the tree, the buffers, and the components; None in format 7, which names none.
    `follows` is the checksum of the part of state that this one follows."""

    tree: Any
    buffers: memoryview
    components: list[tuple[str, int]] | None
    follows: int | None


def opened(data: Bytes) -> Opened:
    """Checks the bytes; damaged data raises `StorageError`."""
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size or view[:8] != MAGIC:
        raise StorageError("this is not saved state of Penstock, or it is damaged from its first bytes on")
    _, version, _, total, manifest_length, stored = _HEADER.unpack_from(view)
    if total != len(view):
        raise StorageError(f"saved state is damaged: {len(view):,} bytes are there where {total:,} were written")
    checksum = xxhash.xxh3_64(view[:_CHECKED])
    checksum.update(view[_HEADER.size :])
    if checksum.intdigest() != stored:
        raise StorageError("saved state is damaged: its checksum does not fit; go back to an earlier checkpoint")
    if version > VERSION:
        raise CheckpointError(
            f"saved state has format version {version}, this Penstock reads up to {VERSION}; "
            "use the version of Penstock that wrote it or a later one"
        )
    if version < OLDEST:
        raise CheckpointError(
            f"saved state has format version {version}, and this Penstock reads {OLDEST} to {VERSION}; "
            "go on with the version of Penstock that wrote it, or start with a new checkpoint directory"
        )
    manifest = json.loads(bytes(view[_HEADER.size : _HEADER.size + manifest_length]))
    start = _aligned(_HEADER.size + manifest_length)
    buffers = view[start:]
    if version == OLDEST:
        return Opened(manifest, buffers, None, None)
    follows = manifest.get("follows")
    return Opened(manifest["tree"], buffers, manifest["components"], None if follows is None else int(follows, 16))


def digest_of(data: Bytes) -> int:
    """The checksum in the header that `sealed` puts before all else."""
    digest: int = _HEADER.unpack_from(data)[5]
    return digest


def one_by_one(data: memoryview) -> Iterator[memoryview]:
    """What `sealed` gave, where one stands behind the other; `opened` checks each."""
    while len(data):
        total = _HEADER.unpack_from(data)[3] if len(data) >= _HEADER.size and data[:8] == MAGIC else 0
        if not _HEADER.size <= total <= len(data):
            raise StorageError("saved state is damaged, or it ends in the middle of a part")
        yield data[:total]
        data = data[total:]


def version_of(data: Bytes) -> int:
    """The format version of bytes that `decode` has accepted."""
    version: int = _HEADER.unpack_from(data)[1]
    return version


def components_of(node: Any) -> dict[str, int]:
    """The names and versions of all components in a decoded tree."""
    found = {node.component: node.version} if isinstance(node, Saved) and node.component else {}
    if isinstance(node, (dict, list)):
        for item in node.values() if isinstance(node, dict) else node:
            found |= components_of(item)
    return dict(sorted(found.items()))


def write_atomically(path: str | os.PathLike[str], *data: Bytes) -> None:
    """Afterwards `path` durably holds `data`, for its owner alone; after a crash or an error, what it held before."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise StorageError(f"{target} cannot be written: {reason}; what it held before is kept") from error


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def place_of(path: str, key: str | int) -> str:
    """The path of a part; different parts have different paths.

    >>> place_of("snapshot", "a"), place_of("snapshot", 3), place_of("snapshot", "a.b")
    ('snapshot.a', 'snapshot[3]', "snapshot['a.b']")
    """
    is_plain = isinstance(key, str) and not any(sign in key for sign in ".[")
    return f"{path}.{key}" if is_plain else f"{path}[{key!r}]"


class Writer:
    """Turns values into manifest nodes and collects their buffers."""

    def __init__(self) -> None:
        self.chunks: list[Bytes] = []
        self.length = 0
        self.components: dict[tuple[str, int], int] = {}
        """The places of names and versions in the manifest's list."""

    def manifest(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        tree = self.node(snapshot, "snapshot")
        return {"components": [list(component) for component in self.components], "tree": tree}

    def node(self, value: object, path: str) -> Any:
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, np.ndarray):
            return self.array(value, path)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -(1 << 63) <= value < 1 << 63 else {"int": hex(value)}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.binary(bytes(value), path)
        if isinstance(value, (list, tuple)):
            return [self.node(item, place_of(path, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise CheckpointError(f"{path}: keys of saved state are strings, not {type(key).__name__}")
            content = {key: self.node(item, place_of(path, key)) for key, item in value.items()}
            if isinstance(value, Saved) and value.component:
                own = self.components.setdefault((value.component, value.version), len(self.components))
                return {"component": [own, content]}
            return {"dict": content}
        raise CheckpointError(f"{path}: a value of type {type(value).__name__} cannot be saved")

    def array(self, array: np.ndarray[Any, Any], path: str) -> Any:
        if array.dtype.hasobject:
            raise CheckpointError(f"{path}: an array of {array.dtype} cannot be saved; use a fixed-width type")
        flat = np.asarray(array, order="C").reshape(-1)
        raw = flat.view(np.uint8).data if flat.nbytes else b""
        return {"array": [*described(array), *self.buffer(raw)]}

    def binary(self, value: bytes, path: str) -> Any:
        return {"bytes": self.buffer(value)}

    def buffer(self, raw: Bytes) -> list[int]:
        offset, size = self.length, len(raw)
        self.chunks += [raw, bytes(_aligned(size) - size)]
        self.length += _aligned(size)
        return [offset, size]


def described(array: np.ndarray[Any, Any]) -> list[Any]:
    """The type and the shape of an array, for `zero_array`."""
    return [np.lib.format.dtype_to_descr(array.dtype), list(array.shape)]


def zero_array(descr: Any, shape: list[int]) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.lib.format.descr_to_dtype(_description(descr)))


class Reader:
    """Turns manifest nodes back into values. Where components have no names, every dictionary may be one."""

    def __init__(self, saved: Opened) -> None:
        self.buffers = saved.buffers
        self._components = saved.components

    def value(self, node: Any, before: Any = None) -> Any:
        """The value of a node; `before` is what an earlier part of the state has in its place."""
        if isinstance(node, list):
            items = before if isinstance(before, list) else []
            return [self.value(item, items[at] if at < len(items) else None) for at, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        [(kind, content)] = node.items()
        if kind == "component":
            own, content = content
            assert self._components is not None
            return Saved(self._items(content, before), *self._components[own])
        if kind == "dict":
            found = self._items(content, before)
            return Saved(found, "", 1) if self._components is None else found
        if kind == "int":
            return int(content, 16)
        if kind == "float":
            return struct.unpack("<d", bytes.fromhex(content))[0]
        if kind == "bytes":
            offset, size = content
            return bytes(self.buffers[offset : offset + size])
        if kind == "array":
            return self._array(*content)
        return self.changed(kind, content, before)

    def changed(self, kind: str, content: Any, before: Any) -> Any:
        """The value of a node that says what has changed in the one before."""
        raise AssertionError(f"a whole state has no node of the kind {kind}")

    def _items(self, content: dict[str, Any], before: Any) -> dict[str, Any]:
        known = before if isinstance(before, dict) else {}
        return {key: self.value(item, known.get(key)) for key, item in content.items()}

    def _array(self, descr: Any, shape: list[int], offset: int, size: int) -> np.ndarray[Any, Any]:
        array = np.empty(shape, np.lib.format.descr_to_dtype(_description(descr)))
        if size:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self.buffers[offset : offset + size], np.uint8)
        return array


def _description(descr: Any) -> Any:
    """JSON has no tuples, which is what numpy wants for the fields of a structured type."""
    if isinstance(descr, str):
        return descr
    return [(name, _description(kind), *(tuple(part) for part in shape)) for name, kind, *shape in descr]
