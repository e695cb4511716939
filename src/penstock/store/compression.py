"""Compression of blocks where it pays: tried on a block now and then, kept on only while it saves enough.

The codec of each block is written with it, so blocks of both kinds live side by side.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.columns import Values
from penstock.errors import StorageError

_NAMES = {0: None, 1: "lz4_raw", 2: "zstd"}
_OPTIONS = {None: 0, "lz4": 1, "zstd": 2}
_TRY_EVERY = 64
_WORTHWHILE = 0.7  # of the original size, or less


class BlockCodec:
    """`compression` is None (never), "lz4" or "zstd" (when it saves at least 30 %)."""

    def __init__(self, compression: str | None) -> None:
        if compression not in _OPTIONS:
            raise StorageError(f"unknown compression {compression!r}; use lz4 or zstd, or none at all")
        self._number = _OPTIONS[compression]
        self._pays = True
        self._until_trial = 0

    def compress(self, payload: bytes | memoryview) -> tuple[int, bytes | memoryview]:
        """The number of the codec used, 0 for none, and what to store."""
        if not self._number:
            return 0, payload
        if not self._pays:
            self._until_trial -= 1
            if self._until_trial > 0:
                return 0, payload
        packed: bytes = pa.compress(payload, codec=_NAMES[self._number], asbytes=True)
        self._pays = len(packed) <= len(payload) * _WORTHWHILE
        self._until_trial = _TRY_EVERY
        return (self._number, packed) if self._pays else (0, payload)

    def decompress(self, number: int, stored: Values, size: int) -> memoryview:
        """The block; `size` is its length."""
        if number == 0:
            return stored.data
        return memoryview(pa.decompress(stored.data, decompressed_size=size, codec=_NAMES[number]))
