"""Rows of a table on disk as checkpoints of ColdRows in version 1 have them: with codes in place of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.operators.tables.cold_records import Rows
from penstock.store.blocks import ColumnSpec
from penstock.store.charged import UNLIMITED
from penstock.store.device import BlockDevice
from penstock.store.hashed_pages import HashedPages
from penstock.store.records import RecordLayout


class CodedRows:
    def __init__(
        self, words: int, columns: Sequence[ColumnSpec], device: BlockDevice, directory: dict[str, Any]
    ) -> None:
        keys = [ColumnSpec(f"key {w}", np.dtype(np.int64), False) for w in range(words)]
        self._words = words
        self._layout = RecordLayout([*keys, *columns])
        self._pages = HashedPages(self._layout.words, words, None, device, UNLIMITED)
        self._pages.restore(directory)

    def parts(self) -> Iterator[Rows]:
        for place in range(len(self._pages)):
            columns = self._layout.unpack(self._pages.page(place).rows)
            yield np.stack([word.values for word in columns[: self._words]], axis=1), columns[self._words :]

    def clear(self) -> None:
        self._pages.clear()
