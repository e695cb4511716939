"""Rows of a table as records on disk, and back.

    in memory   key word | code of a key's text | value | code of a text
    on disk     key word | hash of a key's text | length of it | end | value | length of a text ;  bytes of the texts

Texts are on disk themselves, behind the records of their page, and are found by their bytes: codes are those of texts
in memory, and may stand for others once a row has left it.

Why: docs/decisions/cold-texts-in-rows.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s, Int64s
from penstock.columns import Argument
from penstock.jit import kernel
from penstock.operators.paged.hashing import key_hashes
from penstock.operators.tables.texts import TableTexts, present
from penstock.store.blocks import ColumnSpec
from penstock.store.records import RecordLayout
from penstock.store.text_records import NO_BYTES, NO_TEXTS, Bytes, Records, TextWords
from penstock.types import SqlType

_WORD = np.dtype(np.int64)

Rows = tuple[Int64s, tuple[Argument, ...]]
"""The keys of rows, and the columns besides."""

Decode = Callable[[str, Int32s], pa.StringArray]
"""The texts of codes of a column."""


@kernel
def _lay(starts: Int64s, lengths: Int64s, data: Bytes, out: Bytes) -> None:
    """Puts texts, which stand one behind the other, where they start."""
    at = 0
    for row in range(len(starts)):
        for i in range(lengths[row]):
            out[starts[row] + i] = data[at + i]
        at += lengths[row]


@kernel
def _pick(starts: Int64s, lengths: Int64s, data: Bytes, out: Bytes) -> None:
    """The inverse."""
    at = 0
    for row in range(len(starts)):
        for i in range(lengths[row]):
            out[at + i] = data[starts[row] + i]
        at += lengths[row]


def text_hashes(strings: pa.StringArray) -> Int64s:
    """What stands for the text of a key among its words."""
    hashes: Int64s = key_hashes([strings], [SqlType.STRING], len(strings)).view(np.int64)
    return hashes


class ColdRecords:
    """Of a table with keys of so many words, and such columns besides."""

    def __init__(self, texts: TableTexts, words: int, columns: Sequence[ColumnSpec]) -> None:
        self._texts = texts
        self._decode: Decode = lambda name, codes: texts.interners[name].decode(codes)
        self._own_words = words
        self.has_texts_in_key = bool(texts.in_key)
        self.words = words + len(texts.in_key)
        """Words of a key on disk: behind those in memory are the lengths of its texts."""
        self.text_words = TextWords(len(texts.in_key), self.words) if texts.interners else NO_TEXTS
        self._first = self.words + bool(texts.interners)
        before = [ColumnSpec(f"word {w}", _WORD, False) for w in range(self._first)]
        self._layout = RecordLayout([*before, *columns])
        self.width = self._layout.words

    def word_of(self, place: int) -> int:
        """Which word a column of 64 bits is."""
        return self._layout.word_of(self._first + place)

    # To disk

    @contextmanager
    def decoded_by(self, decode: Decode) -> Iterator[None]:
        """Codes have other texts than those in memory meanwhile."""
        own, self._decode = self._decode, decode
        try:
            yield
        finally:
            self._decode = own

    def packed(self, words: Int64s, columns: Sequence[Argument]) -> Records:
        """The records of rows."""
        if not self._texts.interners:
            return Records(self._layout.pack([*_words(words), *columns]), NO_BYTES)
        held = list(columns)
        strings = self._key_texts(words)
        before, lengths = self._key_words(words, strings), list(map(_lengths, strings))
        for place, name in self._texts.in_columns.items():
            valid = columns[place].valid
            own = self._decode(name, present(columns[place]))
            length = np.zeros(len(words), np.int64)
            length[slice(None) if valid is None else valid] = _lengths(own)
            held[place] = Argument(length, valid)
            strings.append(own)
            lengths.append(length)
        ends = np.cumsum(np.sum(lengths, axis=0))
        rows = self._layout.pack([*before, Argument(ends, None), *held])
        return Records(rows, _laid(ends, lengths, strings))

    def keys(self, words: Int64s) -> Records:
        """Keys as pages find them: the first words of records."""
        if not self._texts.interners:
            return Records(words, NO_BYTES)
        strings = self._key_texts(words)
        lengths = [np.zeros(len(words), np.int64), *map(_lengths, strings)]
        ends = np.cumsum(np.sum(lengths, axis=0))
        rows = np.stack([*(word for word, _ in self._key_words(words, strings)), ends], axis=1)
        return Records(rows, _laid(ends, lengths[1:], strings))

    def widened(self, keys: Records) -> Records:
        """Such keys as records of which nothing else counts."""
        rows = np.zeros((len(keys.rows), self.width), np.int64)
        rows[:, : keys.rows.shape[1]] = keys.rows
        return Records(rows, keys.texts)

    def _key_texts(self, words: Int64s) -> list[pa.StringArray]:
        return [self._decode(name, words[:, w].astype(np.int32)) for w, name in self._texts.in_key.items()]

    def _key_words(self, words: Int64s, strings: Sequence[pa.StringArray]) -> list[Argument]:
        """The words of keys on disk."""
        found = _words(words)
        for w, own in zip(self._texts.in_key, strings, strict=True):
            found[w] = Argument(text_hashes(own), None)
        return [*found, *(Argument(_lengths(own), None) for own in strings)]

    # To memory

    def rows(self, records: Records) -> Rows:
        """The rows of records. Texts that were not known have codes of their own, without a use."""
        words, columns = self._numbers(records)
        if self._texts.interners:
            strings = self._strings(records, columns)
            held = list(columns)
            for w, name in self._texts.in_key.items():
                words[:, w] = self._texts.interners[name].encode(strings[name])
            for place, name in self._texts.in_columns.items():
                held[place] = _with_nulls(self._texts.interners[name].encode(strings[name]), columns[place])
            columns = tuple(held)
        return words, columns

    def known_keys(self, records: Records) -> Int64s:
        """The keys of records; no key in memory is like one with a text that is not in memory."""
        words = records.rows[:, : self._own_words].copy()
        if self._texts.in_key:
            for (w, name), own in zip(self._texts.in_key.items(), self._texts_of_keys(records), strict=True):
                words[:, w] = self._texts.interners[name].find(own)
        return words

    def read(self, records: Records) -> tuple[Int64s, tuple[Argument, ...], dict[str, pa.StringArray]]:
        """Rows as they are read once, besides memory: keys and columns, of which texts stand in arrays of their own."""
        words, columns = self._numbers(records)
        if not self._texts.interners:
            return words, columns, {}
        strings = self._strings(records, columns)
        for place, name in self._texts.in_columns.items():
            valid = columns[place].valid
            if valid is not None:
                strings[name] = strings[name].take(pa.array(np.cumsum(valid) - 1, mask=~valid))
        return words, columns, strings

    def _numbers(self, records: Records) -> Rows:
        columns = self._layout.unpack(np.ascontiguousarray(records.rows))
        return np.stack([word.values for word in columns[: self._own_words]], axis=1), columns[self._first :]

    def _texts_of_keys(self, records: Records) -> list[pa.StringArray]:
        starts = _starts(records, self.text_words.end)
        found = []
        for w in range(self._own_words, self.words):
            lengths = np.ascontiguousarray(records.rows[:, w])
            found.append(_picked(starts, lengths, records.texts))
            starts = starts + lengths
        return found

    def _strings(self, records: Records, columns: Sequence[Argument]) -> dict[str, pa.StringArray]:
        """The texts of each column, without those that are NULL."""
        found = dict(zip(self._texts.in_key.values(), self._texts_of_keys(records), strict=True))
        starts = _starts(records, self.text_words.end) + records.rows[:, self._own_words : self.words].sum(axis=1)
        for place, name in self._texts.in_columns.items():
            lengths, valid = columns[place].values.astype(np.int64), columns[place].valid
            own = slice(None) if valid is None else valid
            found[name] = _picked(starts[own], lengths[own], records.texts)
            starts = starts + lengths
        return found


def _words(words: Int64s) -> list[Argument]:
    return [Argument(words[:, w], None) for w in range(words.shape[1])]


def _offsets(strings: pa.StringArray) -> Int32s:
    offsets: Int32s = np.frombuffer(strings.buffers()[1], np.int32)[strings.offset : strings.offset + len(strings) + 1]
    return offsets


def _lengths(strings: pa.StringArray) -> Int64s:
    lengths: Int64s = np.diff(_offsets(strings)).astype(np.int64)
    return lengths


def _starts(records: Records, end: int) -> Int64s:
    return np.concatenate([np.zeros(1, np.int64), records.rows[:-1, end]])[: len(records.rows)]


def _laid(ends: Int64s, lengths: Sequence[Int64s], strings: Sequence[pa.StringArray]) -> Bytes:
    """The texts of rows, one row behind the other."""
    texts: Bytes = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - np.sum(lengths, axis=0) if lengths else ends
    for length, own in zip(lengths, strings, strict=True):
        data = own.buffers()[2]
        if data is not None and len(own):
            begin = int(_offsets(own)[0])
            _lay(starts, length, np.frombuffer(data, np.uint8)[begin:], texts)
        starts = starts + length
    return texts


def _picked(starts: Int64s, lengths: Int64s, texts: Bytes) -> pa.StringArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    _pick(np.ascontiguousarray(starts), np.ascontiguousarray(lengths), texts, data)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _with_nulls(codes: Int32s, column: Argument) -> Argument:
    """Codes of the values that are there."""
    if column.valid is None:
        return Argument(codes, None)
    held = np.zeros(len(column.values), np.int32)
    held[column.valid] = codes
    return Argument(held, column.valid)
