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
from pathlib import Path
from typing import Any

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


def encode(snapshot: dict[str, Any]) -> bytes:
    """The snapshot as bytes.

    >>> decode(encode({"counts": np.arange(3), "name": "q1"}))
    {'counts': array([0, 1, 2]), 'name': 'q1'}
    """
    writer = _Writer()
    tree = writer.node(snapshot, "snapshot")
    whole = {"components": [list(component) for component in writer.components], "tree": tree}
    manifest = json.dumps(whole, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    start = _aligned(_HEADER.size + len(manifest))
    chunks: list[bytes | memoryview] = [manifest, bytes(start - _HEADER.size - len(manifest)), *writer.chunks]
    header = _HEADER.pack(MAGIC, VERSION, 0, start + writer.length, len(manifest), 0)[:_CHECKED]
    checksum = xxhash.xxh3_64(header)
    for chunk in chunks:
        checksum.update(chunk)
    return b"".join([header, struct.pack("<Q", checksum.intdigest()), *chunks])


def decode(data: bytes | memoryview) -> dict[str, Any]:
    """The inverse of `encode`; arrays own writable memory. Damaged data raises `StorageError`. Components come back as
    they were written, whatever their versions."""
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
    if version == OLDEST:
        reader = _Reader(view[start:], [], names_components=False)
        root = reader.value(manifest)
    else:
        reader = _Reader(view[start:], manifest["components"], names_components=True)
        root = reader.value(manifest["tree"])
    assert isinstance(root, dict)
    return root


def version_of(data: bytes | memoryview) -> int:
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


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Afterwards `path` durably holds `data`, for its owner alone; after a crash or an error, what it held before."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
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


class _Writer:
    """Turns values into manifest nodes and collects their buffers."""

    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview] = []
        self.length = 0
        self.components: dict[tuple[str, int], int] = {}
        """The places of names and versions in the manifest's list."""

    def node(self, value: object, path: str) -> Any:
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -(1 << 63) <= value < 1 << 63 else {"int": hex(value)}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"bytes": self._buffer(bytes(value))}
        if isinstance(value, (list, tuple)):
            return [self.node(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise CheckpointError(f"{path}: keys of saved state are strings, not {type(key).__name__}")
            content = {key: self.node(item, f"{path}.{key}") for key, item in value.items()}
            if isinstance(value, Saved) and value.component:
                own = self.components.setdefault((value.component, value.version), len(self.components))
                return {"component": [own, content]}
            return {"dict": content}
        raise CheckpointError(f"{path}: a value of type {type(value).__name__} cannot be saved")

    def _array(self, array: np.ndarray[Any, Any], path: str) -> Any:
        if array.dtype.hasobject:
            raise CheckpointError(f"{path}: an array of {array.dtype} cannot be saved; use a fixed-width type")
        flat = np.asarray(array, order="C").reshape(-1)
        raw = flat.view(np.uint8).data if flat.nbytes else b""
        descr = np.lib.format.dtype_to_descr(array.dtype)
        return {"array": [descr, list(array.shape), *self._buffer(raw)]}

    def _buffer(self, raw: bytes | memoryview) -> list[int]:
        offset, size = self.length, len(raw)
        self.chunks += [raw, bytes(_aligned(size) - size)]
        self.length += _aligned(size)
        return [offset, size]


class _Reader:
    """Turns manifest nodes back into values. Where components have no names, every dictionary may be one."""

    def __init__(self, buffers: memoryview, components: list[tuple[str, int]], *, names_components: bool) -> None:
        self._buffers = buffers
        self._components = components
        self._names_components = names_components

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        [(kind, content)] = node.items()
        if kind == "component":
            own, content = content
            return Saved(self._items(content), *self._components[own])
        if kind == "dict":
            items = self._items(content)
            return items if self._names_components else Saved(items, "", 1)
        if kind == "int":
            return int(content, 16)
        if kind == "float":
            return struct.unpack("<d", bytes.fromhex(content))[0]
        if kind == "bytes":
            offset, size = content
            return bytes(self._buffers[offset : offset + size])
        assert kind == "array"
        return self._array(*content)

    def _items(self, content: dict[str, Any]) -> dict[str, Any]:
        return {key: self.value(item) for key, item in content.items()}

    def _array(self, descr: Any, shape: list[int], offset: int, size: int) -> np.ndarray[Any, Any]:
        array = np.empty(shape, np.lib.format.descr_to_dtype(_description(descr)))
        if size:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self._buffers[offset : offset + size], np.uint8)
        return array


def _description(descr: Any) -> Any:
    """JSON has no tuples, which is what numpy wants for the fields of a structured type."""
    if isinstance(descr, str):
        return descr
    return [(name, _description(kind), *(tuple(part) for part in shape)) for name, kind, *shape in descr]
