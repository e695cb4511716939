"""Monotonic deques for all slots of one selective aggregate, in a pool of small linked chunks.

An entry is a row that may still become the answer of its slot: its position and whether its payload is valid (one
word), its key and its payload. A row that enters first drives out, at the back, every entry that it beats for good
(a strictly greater key); the answer is the entry at the front. Equal keys stay, older in front: the earliest event
wins, and the next takes over when it leaves.

Invariants:
1. From front to back positions rise and keys do not fall (as `beats` compares them).
2. A deque is a chain of chunks; all but the first and the last are full. An empty deque has no chunk.
3. A link of SPILLED stands for a stretch of full chunks that is not in the pool: between the *front segment* and the
   *back segment* of a deque there is at most one such stretch. The first and the last chunk are always in the pool.
4. A kernel that cannot go on (no free chunk, or a spilled one is next) changes nothing further, leaves its cursors
   in `control` and says what it needs; called again with the same arguments it resumes there. Between schedules the
   cursors are zero.

Chunks and entries are named by the place of their first word in the pool. Called by `selective.SelectiveState`, and
by `deque_paging`, which moves stretches of chunks to a device and back.

Why: docs/decisions/deques-and-trees.md
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.aggregates.images import Word, ordering_key, total_key
from penstock.arrays import Bools, Int64s, Slots
from penstock.jit import inline, prefetch, tight

CHUNK_WORDS = 32
"""Two links, then ten entries: (position * 2 + payload valid, key, payload) each. A power of two: see `chunk_of`."""
ENTRY_WORDS = 3
PREVIOUS, NEXT, FIRST_ENTRY = 0, 1, 2
LAST_ENTRY = CHUNK_WORDS - ENTRY_WORDS
ENTRIES_WORDS = CHUNK_WORDS - FIRST_ENTRY

NONE, SPILLED = -1, -2

FRONT, BACK = 0, 1
"""The columns of the directory: the entries at the front and at the back of every slot, NONE when it is empty."""

FREE_CHAIN, UNTOUCHED, FREE_COUNT, STEP, ADDED, REMOVED, EMITTED, STUCK_SLOT = range(8)
CONTROL_WORDS = 8
"""Free chunks are chained by NEXT from FREE_CHAIN; those from UNTOUCHED on were never used. Then the cursors."""

BY_KEY, BY_RANK, KEEP_ALL, KEEP_NEWEST, BY_TOTAL_KEY = 0, 1, 2, 3, 4
"""What a key is: the value's ordering key, a string code that `ranks` orders, nothing (FIRST, LAST), or the value's
total key."""

_AHEAD = 16
_IN_CACHE = 1 << 12
"""From so many slots on, the directory is larger than the cache: entries are fetched ahead."""

DONE, NEEDS_CHUNK, NEEDS_FRONT, NEEDS_BACK = 0, 1, 2, 3


class Chains(NamedTuple):
    """The three arrays that are all deques of one state."""

    pool: Int64s
    directory: Int64s
    control: Int64s


@inline
def chunk_of(entry: Word) -> Word:
    return entry & -CHUNK_WORDS


@inline
def take_chunk(pool: Int64s, control: Int64s) -> Word:
    """A free chunk, or NONE."""
    chunk: Word = control[FREE_CHAIN]
    if chunk != NONE:
        control[FREE_CHAIN] = pool[chunk + NEXT]
        control[FREE_COUNT] -= 1
    elif control[FREE_COUNT] > 0:
        chunk = control[UNTOUCHED]
        control[UNTOUCHED] += CHUNK_WORDS
        control[FREE_COUNT] -= 1
    return chunk


@inline
def free_chunk(pool: Int64s, control: Int64s, chunk: Word) -> None:
    pool[chunk + NEXT] = control[FREE_CHAIN]
    control[FREE_CHAIN] = chunk
    control[FREE_COUNT] += 1


@inline
def beats(key: Word, other: Word, ranked: bool, flip: int, ranks: Int64s) -> bool | np.bool_:
    """Whether an entry that enters with `key` makes an older one with the key `other` pointless."""
    return ranks[other] ^ flip > ranks[key] ^ flip if ranked else other > key


@tight
def play(
    pool: Int64s,
    directory: Int64s,
    control: Int64s,
    ranks: Int64s,
    rule: int,
    flip: int,
    floating: bool,
    positions: Int64s,
    slots: Slots,
    keys: Int64s,
    keys_valid: Bools,
    payloads: Int64s,
    payloads_valid: Bools,
    leaving_positions: Int64s,
    leaving_slots: Slots,
    add_upto: Int64s,
    remove_upto: Int64s,
    emit_upto: Int64s,
    emit_slots: Slots,
    out: Int64s,
    out_valid: Bools,
) -> int:
    """Plays a schedule from the cursors in `control`; returns DONE or what it needs to go on.

    `keys` are images of values, or string codes; `flip` is -1 where the greatest wins. No validity: no NULL.
    """
    step, row, left, emitted = control[STEP], control[ADDED], control[REMOVED], control[EMITTED]
    keys_nullable, payloads_nullable = len(keys_valid) > 0, len(payloads_valid) > 0
    ranked = rule == BY_RANK
    need = DONE
    far = len(slots) - _AHEAD if len(directory) > _IN_CACHE else 0
    places, entries = directory.ctypes.data, pool.ctypes.data
    while step < len(add_upto):
        while row < add_upto[step]:
            if row < far:  # what these rows come to is not in the cache: have it fetched, first places, then entries
                prefetch(places + 16 * max(slots[row + _AHEAD], 0))
                prefetch(entries + 8 * max(directory[max(slots[row + _AHEAD // 2], 0), BACK], 0))
            slot = slots[row]
            if slot >= 0 and not (keys_nullable and not keys_valid[row]):
                if rule == BY_KEY:
                    key: Word = ordering_key(keys[row], floating) ^ flip
                elif ranked:
                    key = keys[row]
                elif rule == BY_TOTAL_KEY:
                    key = total_key(keys[row], floating) ^ flip
                elif rule == KEEP_ALL:
                    key = np.int64(0)
                else:
                    key = -positions[row]
                mark = positions[row] * 2 + (not (payloads_nullable and not payloads_valid[row]))
                need = enter(pool, directory, control, ranks, ranked, flip, slot, mark, key, payloads[row])
                if need != DONE:
                    break
            row += 1
        if need != DONE:
            break
        while left < remove_upto[step]:
            slot = leaving_slots[left]
            if slot >= 0:
                need = leave(pool, directory, control, slot, leaving_positions[left])
                if need != DONE:
                    break
            left += 1
        if need != DONE:
            break
        while emitted < emit_upto[step]:
            front = directory[emit_slots[emitted], FRONT]
            if front == NONE:
                out[emitted] = 0
                out_valid[emitted] = False
            else:
                out[emitted] = pool[front + 2]
                out_valid[emitted] = pool[front] & 1 != 0
            emitted += 1
        step += 1
    if need == DONE:
        step, row, left, emitted = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    control[STEP], control[ADDED], control[REMOVED], control[EMITTED] = step, row, left, emitted
    return need


@inline
def enter(
    pool: Int64s,
    directory: Int64s,
    control: Int64s,
    ranks: Int64s,
    ranked: bool,
    flip: int,
    slot: Word,
    mark: Word,
    key: Word,
    payload: Word,
) -> int:
    """Puts an entry at the back, without those that it beats."""
    need = DONE
    only = directory[slot, BACK]
    if only != NONE and only == directory[slot, FRONT] and beats(key, pool[only + 1], ranked, flip, ranks):
        # It takes the place of the only one: LAST never has another.
        pool[only] = mark
        pool[only + 1] = key
        pool[only + 2] = payload
    else:
        need = drive_out(pool, directory, control, ranks, ranked, flip, slot, key)
        if need == DONE:
            need = push(pool, directory, control, slot, mark, key, payload)
    return need


@inline
def drive_out(
    pool: Int64s, directory: Int64s, control: Int64s, ranks: Int64s, ranked: bool, flip: int, slot: Word, key: Word
) -> int:
    """Pops, at the back, the entries that a new one with this key beats."""
    need = DONE
    back = directory[slot, BACK]
    if back != NONE and beats(key, pool[back + 1], ranked, flip, ranks):
        front = directory[slot, FRONT]
        while True:
            if back == front:
                free_chunk(pool, control, chunk_of(back))
                back = np.int64(NONE)
                directory[slot, FRONT] = NONE
                break
            if back & (CHUNK_WORDS - 1) != FIRST_ENTRY:
                back -= ENTRY_WORDS
            else:
                chunk = chunk_of(back)
                previous = pool[chunk + PREVIOUS]
                if previous == SPILLED:
                    control[STUCK_SLOT] = slot
                    need = NEEDS_BACK
                    break
                free_chunk(pool, control, chunk)
                pool[previous + NEXT] = NONE
                back = previous + LAST_ENTRY
            if not beats(key, pool[back + 1], ranked, flip, ranks):
                break
        directory[slot, BACK] = back
    return need


@inline
def push(pool: Int64s, directory: Int64s, control: Int64s, slot: Word, mark: Word, key: Word, payload: Word) -> int:
    """Puts an entry at the back."""
    need = DONE
    back = directory[slot, BACK]
    if back != NONE and back & (CHUNK_WORDS - 1) != LAST_ENTRY:
        back += ENTRY_WORDS
    else:
        chunk = take_chunk(pool, control)
        if chunk == NONE:
            need = NEEDS_CHUNK
        else:
            pool[chunk + NEXT] = NONE
            if back == NONE:
                pool[chunk + PREVIOUS] = NONE
                directory[slot, FRONT] = chunk + FIRST_ENTRY
            else:
                pool[chunk + PREVIOUS] = chunk_of(back)
                pool[chunk_of(back) + NEXT] = chunk
            back = chunk + FIRST_ENTRY
    if need == DONE:
        directory[slot, BACK] = back
        pool[back] = mark
        pool[back + 1] = key
        pool[back + 2] = payload
    return need


@inline
def leave(pool: Int64s, directory: Int64s, control: Int64s, slot: Word, position: Word) -> int:
    """Pops the front if it is the row at this position; a row that was driven out before is not there any more."""
    need = DONE
    front = directory[slot, FRONT]
    if front != NONE and pool[front] >> 1 == position:
        chunk = chunk_of(front)
        if front == directory[slot, BACK]:
            free_chunk(pool, control, chunk)
            directory[slot, FRONT] = NONE
            directory[slot, BACK] = NONE
        elif front & (CHUNK_WORDS - 1) != LAST_ENTRY:
            directory[slot, FRONT] = front + ENTRY_WORDS
        else:
            following = pool[chunk + NEXT]
            if following == SPILLED:
                control[STUCK_SLOT] = slot
                need = NEEDS_FRONT
            else:
                free_chunk(pool, control, chunk)
                pool[following + PREVIOUS] = NONE
                directory[slot, FRONT] = following + FIRST_ENTRY
    return need


@tight
def clear(pool: Int64s, directory: Int64s, control: Int64s, slots: Slots) -> None:
    """Empties these slots, as far as they are in the pool."""
    for slot in slots:
        if directory[slot, FRONT] != NONE:
            chunk = chunk_of(directory[slot, FRONT])
            while chunk >= 0:
                following = pool[chunk + NEXT]
                free_chunk(pool, control, chunk)
                chunk = following
            if chunk == SPILLED:
                chunk = chunk_of(directory[slot, BACK])
                while chunk >= 0:
                    preceding = pool[chunk + PREVIOUS]
                    free_chunk(pool, control, chunk)
                    chunk = preceding
            directory[slot, FRONT] = NONE
            directory[slot, BACK] = NONE
