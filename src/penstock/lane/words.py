"""What the words of a context and of an instruction mean.

A context is one array of int64. It says which rows enter, which block the tail of the window stands in, and how far
the program has come. Rows are named by their place in the call, rows of the tail by their place in the tail's block.
"""

from __future__ import annotations

(
    CODE,  # the address of the instructions
    INSTRUCTIONS,  # how many there are
    NEXT_INSTRUCTION,  # where the program goes on; 0 between two strips
    ROWS,  # how many rows enter in this call
    DONE,  # how many of them are in
    UPTO,  # the rows DONE .. UPTO are the strip at work
    STOPPED,  # 1 if row UPTO is for the ordinary path
    TIMES,  # the times of the rows that enter
    SLOTS,  # their slots (int32); 0 if all rows are of slot 0
    HEAD,  # the position of row 0 in the store; a call may begin with a later row
    LEFT,  # for each row of the strip: the rows of the tail's block before this place have left
    KEPT,  # room for KEPT_WORDS for each row of the strip, while an operation is at work
    STARTS,  # where windows by position write the beginning of each row's window
    EXTENT,  # the microseconds or rows of the window
    TAIL_TIMES,  # the times of the tail's block
    TAIL_SLOTS,  # the slots of the tail's block (int32)
    TAIL_FIRST,  # the position of the first row of the tail's block
    TAIL_AT,  # the first row of the tail's block that has not left
    TAIL_UPTO,  # the rows TAIL_AT .. TAIL_UPTO leave with the strip at work
    TAIL_ROWS,  # how many rows the tail's block has
    TAIL_IS_LAST,  # 1 if it is the last block of the store
    EMITTED,  # how many results there are before the strip at work
    EMITTED_NEXT,  # how many with it
    MET,  # what operations met, as bits
    AT_ROW,  # where an operation that waits goes on: the row that enters,
    AT_TAIL,  # the row that leaves,
    AT_RESULT,  # the result,
    AT_PHASE,  # and whether the row is in
    OPEN,  # the address of the open block of the store, for rows that the program stores itself
    OPEN_ROWS,  # how many rows it had before row 0; less than 0 if it was begun behind row 0
    OPEN_LIMIT,  # how many rows it can have
    STRIP_FIRST,  # the first row of the last strip
    STOPS_AT_MARKS,  # 1 if a run ends behind a strip that has marked something in MET
    CONTEXT_WORDS,
) = range(34)

OPERATION, INSTRUCTION_WORDS = 0, 12
"""An instruction: the address of its operation, and what the operation says that follows."""

STRIP_ROWS = 1024
"""So many rows are at work at once: what the operations say of them stays in the cache."""

KEPT_WORDS = 6

FINISHED, NEEDS_TAIL, STOPS, NEEDS_BLOCK, MARKED, NEEDS = 0, 1, 2, 3, 4, 16
"""What a run ends with: all rows are in; the tail's block has been left, and the next one is needed; row DONE is for
the ordinary path; the open block is full; something is marked in MET. A state that needs something gives NEEDS plus
what it is."""

VIOLATED = 1 << 32
"""What a run of the checked build ends with whose operation accesses memory that is not there (`checked_memory`)."""

GOES_ON = 0
"""What an operation returns that is done with its strip."""

FAILURES, REJECTS = 2, 4
"""Bits of MET: the sum of some result does not fit; some result is rejected."""
