"""Pane rows of the selective aggregates: of each pane and group the one row that answers for all of them.

A pane row is the entry at the front of the pane's deque (see `deques`), in three words:

    0  1 + 2 if the payload is valid; 0 where no row counted    1  the key, as deques compare it    2  the payload

Among panes the same rule decides as among rows: the earliest of equal keys, FIRST the oldest pane row and LAST the
newest. Like the kernel of `deques`, those here stop when they need a chunk and go on when they are called again.
"""

from __future__ import annotations

import numpy as np

from penstock.aggregates import deques
from penstock.aggregates.images import Word
from penstock.arrays import Int64s, Slots
from penstock.jit import tight

FRONT_WORDS = 3


@tight
def write_fronts(pool: Int64s, directory: Int64s, slots: Slots, words: Int64s, at: int) -> None:
    """The pane rows of these slots, to words[:, at : at + 3]."""
    for row in range(len(slots)):
        front = directory[slots[row], deques.FRONT]
        if front == deques.NONE:
            words[row, at] = words[row, at + 1] = words[row, at + 2] = 0
        else:
            words[row, at] = 1 + 2 * (pool[front] & 1)
            words[row, at + 1] = pool[front + 1]
            words[row, at + 2] = pool[front + 2]


@tight
def enter_fronts(
    pool: Int64s,
    directory: Int64s,
    control: Int64s,
    positions: Int64s,
    words: Int64s,
    at: int,
    groups: Slots,
    windows: int,
    rule: int,
) -> int:
    """Each row enters the deques of all windows of its group; the cursor counts deques entered."""
    done = control[deques.ADDED]
    need = deques.DONE
    while done < len(groups) * windows:
        row = done // windows
        if words[row, at] != 0:
            slot = np.int64(groups[row]) * windows + done % windows
            key: Word = -positions[row] if rule == deques.KEEP_NEWEST else words[row, at + 1]
            mark = positions[row] * 2 + words[row, at] // 2
            need = deques.enter(pool, directory, control, positions, False, 0, slot, mark, key, words[row, at + 2])
            if need != deques.DONE:
                break
        done += 1
    control[deques.ADDED] = 0 if need == deques.DONE else done
    return need


@tight
def leave_fronts(pool: Int64s, directory: Int64s, control: Int64s, positions: Int64s, slots: Slots) -> int:
    """Each row leaves one deque."""
    done = control[deques.REMOVED]
    need = deques.DONE
    while done < len(slots):
        need = deques.leave(pool, directory, control, np.int64(slots[done]), positions[done])
        if need != deques.DONE:
            break
        done += 1
    control[deques.REMOVED] = 0 if need == deques.DONE else done
    return need
