"""The loop that runs a program: strip after strip, all instructions of the list.

    strip: rows DONE .. UPTO      limits: UPTO may become less; nothing has changed yet
                                  leaving: which rows leave with each row
                                  states: add, remove, emit

Invariants:
1. Operations that change UPTO come before all operations that change a state.
2. A run that ends has done whole strips. The one exception is a state that needs something: the run goes on at that
   instruction, where the operation has left its cursors in the context.
3. Row UPTO of a strip that was stopped is untouched. Rows that leave before it may have left: they leave with it
   whichever way it goes.

Operations are called by address: a program loads the operations that it names and no others, and each is compiled on
its own.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.jit import Kernel, intrinsic, numba_types, tight
from penstock.lane.memory import IS_CHECKED, int64s
from penstock.lane.words import (
    AT_PHASE,
    CODE,
    DONE,
    EMITTED,
    EMITTED_NEXT,
    FINISHED,
    GOES_ON,
    HEAD,
    INSTRUCTION_WORDS,
    INSTRUCTIONS,
    MARKED,
    MET,
    NEEDS_BLOCK,
    NEEDS_TAIL,
    NEXT_INSTRUCTION,
    OPEN_LIMIT,
    OPEN_ROWS,
    ROWS,
    STOPPED,
    STOPS,
    STOPS_AT_MARKS,
    STRIP_FIRST,
    STRIP_ROWS,
    TAIL_AT,
    TAIL_IS_LAST,
    TAIL_ROWS,
    TAIL_UPTO,
    UPTO,
)

Operation = Callable[[int, int], int]
"""Called with the addresses of the context and of its instruction."""


@intrinsic
def _call(typing: Any, operation: Any, context: Any, instruction: Any) -> Any:
    """Calls a compiled operation by its address. Operations raise in the checked build only."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        word = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word, word]).as_pointer())
        if IS_CHECKED:
            from penstock.lane import checked_memory

            return checked_memory.call(builder, function, arguments[1:])
        return builder.call(function, arguments[1:])

    word = numba_types().int64
    return word(word, word, word), generate


def entry(operation: Operation) -> int:
    """The address of a compiled operation; it is loaded or compiled when it is first asked for."""
    assert isinstance(operation, Kernel)
    return operation.address(0, 0)


@tight
def run(context: int) -> int:
    """Goes on until all rows are in or something is needed; returns what a run ends with (`words`)."""
    words = int64s(context)
    code, count = words[CODE], words[INSTRUCTIONS]
    at = words[NEXT_INSTRUCTION]
    while True:
        if at == 0:
            left = words[ROWS] - words[DONE]
            if left == 0:
                return FINISHED
            room = words[OPEN_LIMIT] - words[OPEN_ROWS] - words[DONE]
            if room == 0:
                return NEEDS_BLOCK
            words[STRIP_FIRST] = words[DONE]
            words[UPTO] = words[DONE] + min(left, room, STRIP_ROWS)
            words[STOPPED] = 0
        while at < count:
            instruction = code + at * INSTRUCTION_WORDS * 8
            status = _call(int64s(instruction)[0], context, instruction)
            if status != GOES_ON:
                words[NEXT_INSTRUCTION] = at
                return int(status)
            at += 1
        at = 0
        words[NEXT_INSTRUCTION] = 0
        words[DONE] = words[UPTO]
        words[EMITTED] = words[EMITTED_NEXT]
        words[TAIL_AT] = words[TAIL_UPTO]
        if words[MET] != 0 and words[STOPS_AT_MARKS] != 0:
            return MARKED  # what else ends the run here ends the next strip, before its first row
        if words[STOPPED] != 0:
            return STOPS
        if words[TAIL_AT] == words[TAIL_ROWS] and words[TAIL_IS_LAST] == 0:
            return NEEDS_TAIL


@tight
def start(context: int, row: int, head: int) -> int:
    """Runs a program from its beginning: row `row` of the columns of the call enters at position `head`. Its result is
    result `row`."""
    words = int64s(context)
    words[NEXT_INSTRUCTION] = words[AT_PHASE] = words[MET] = 0
    words[DONE] = words[EMITTED] = words[EMITTED_NEXT] = row
    words[HEAD] = head - row
    return run(context)
