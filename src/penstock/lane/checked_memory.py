"""The checked build: each access of an operation is compared with the memory that its owner has.

    address: 1 << 62 | number of the memory << 36 | offset + 2**35
    table:   where memory `number` begins and how many bytes it has; 0 and 0 if it is gone

With PENSTOCK_CHECKED_LANE=1 in the environment, `memory` and `machine` use these functions in place of their own. An
address is then no place in memory: it names a *memory* and an offset in it, which may be before its beginning or behind
its end. Operations add to such addresses as to others. An access is allowed if all of its bytes are in the memory that
its address names.

Invariants:
1. An address to which less than 32 GB are added names the same memory. A column of a block is a memory of its own, and
   so is each part of an array whose address was asked for.
2. A memory is in the table while the array that owns it lives. Its number is given again when all others have been.
3. An access that is not allowed does not happen. The operation raises, and `call` returns VIOLATED then.

What is in a memory is not checked: rows of a block that are not written yet may be read.

Why: docs/decisions/lane-on-the-states.md
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, imputils, types
from numba.core.datamodel import models
from numba.core.typing import templates
from numba.extending import register_model
from numpy.typing import NDArray

from penstock.lane.words import VIOLATED
from penstock.store.blocks import Frame

_OURS, _NUMBER, _MIDDLE, _MEMORIES = 62, 36, 1 << 35, 1 << 20
_WORD = ir.IntType(64)
_llvm: Any = llvmlite.binding
_cgutils: Any = cgutils
_types: Any = types
_imputils: Any = imputils
_templates: Any = templates

_MET, _AT, _BYTES, _FIRST = 0, 1, 2, 4
"""The words of the table: how many accesses were not allowed, the offset of the last one, the bytes of the memory that
it names, and where the memories begin. Memory 0 is none."""

_table = np.zeros(_FIRST + 2 * _MEMORIES, np.int64)
_memories = _table[_FIRST:].reshape(-1, 2)
_known: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
_last = 0
_lock = threading.Lock()


def address_of(array: NDArray[Any]) -> int:
    """Where an array begins."""
    assert array.flags.c_contiguous
    return _address(array, [(array.ctypes.data, array.nbytes)])


def parts_of(array: NDArray[Any], words: int) -> Sequence[int]:
    """Where the parts of an array begin that have so many words each."""
    return [address_of(array[first : first + words]) for first in range(0, len(array), words)]


def block_at(frame: Frame) -> tuple[int, Sequence[int]]:
    """The address of a block, and what is added to it for each column."""
    layout, begin = frame.layout, frame.address
    sizes = [layout.rows * column.dtype.itemsize for column in layout.columns]
    spans = [(begin + offset, size) for offset, size in zip(layout.value_offsets, sizes, strict=True)]
    return _address(frame.payload, spans), [offset_of(place, 0) for place in range(len(spans))]


def offset_of(place: int, offset: int) -> int:
    """What is added to the address of a block for a column, which would otherwise be this offset: the columns of a
    block have numbers that follow each other."""
    return place << _NUMBER


def _address(array: NDArray[Any], spans: Sequence[tuple[int, int]]) -> int:
    """The address of the first of some memories of an array, whose numbers follow each other."""
    global _last
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    known = (id(owner), tuple(spans))
    with _lock:
        if known not in _known:
            first = _last + 1
            while first + len(spans) > _MEMORIES or _memories[first : first + len(spans)].any():
                first = first + 1 if first + len(spans) < _MEMORIES else 1
            _last = first + len(spans) - 1
            _memories[first : _last + 1] = spans
            _known[known] = first
            weakref.finalize(owner, _forget, known).atexit = False
        return 1 << _OURS | _known[known] << _NUMBER | _MIDDLE


def _forget(known: tuple[int, tuple[tuple[int, int], ...]]) -> None:
    first = _known.pop(known)
    _memories[first : first + len(known[1])] = 0


def violation(operation: Callable[..., int]) -> IndexError:
    """What is raised when an operation has returned VIOLATED."""
    at, size = _table[[_AT, _BYTES]].tolist()
    where = (
        f"byte {at} of memory that has {size} bytes" if size else "memory that is empty, gone or was never registered"
    )
    return IndexError(f"the operation {operation.__name__} of the lane accesses {where}")


class _Checked(types.Type):
    """An array at an address: its values have the type `kind`, its rows so many of them."""

    def __init__(self, kind: Any, width: int = 1) -> None:
        self.kind, self.width = kind, width
        self.place = _types.int64 if width == 1 else _types.UniTuple(_types.int64, 2)
        super().__init__(f"checked({kind}, {width})")


@register_model(_Checked)
class _Model(models.StructModel):
    def __init__(self, manager: Any, kind: _Checked) -> None:
        cast(Any, super()).__init__(manager, kind, [(name, _types.int64) for name in ("begin", "size", "offset")])


def array_at(name: str, *width: int) -> Callable[[Any, Any], Any]:
    """What makes an array of an address, as `memory` has it."""

    def typed(typing: Any, address: Any) -> Any:
        kind = _Checked(getattr(_types, name), *width)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            (address,) = arguments
            made = _cgutils.create_struct_proxy(kind)(context, builder)
            number = builder.and_(builder.lshr(address, _WORD(_NUMBER)), _WORD((1 << _OURS - _NUMBER) - 1))
            ours = builder.icmp_unsigned("==", builder.lshr(address, _WORD(_OURS)), _WORD(1))
            ours = builder.and_(ours, builder.icmp_unsigned("<", number, _WORD(_MEMORIES)))
            entry = builder.shl(builder.select(ours, number, _WORD(0)), _WORD(1))
            made.begin, made.size = (builder.load(builder.gep(_word(builder, _FIRST + at), [entry])) for at in range(2))
            made.offset = builder.sub(builder.and_(address, _WORD((1 << _NUMBER) - 1)), _WORD(_MIDDLE))
            return made._getvalue()

        return kind(_types.int64), generate

    return typed


@_templates.infer_global(operator.getitem)
class _Reads(templates.AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        array = args[0]
        return _templates.signature(array.kind, array, array.place) if isinstance(array, _Checked) else None


@_templates.infer_global(operator.setitem)
class _Writes(templates.AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        array = args[0]
        return (
            _templates.signature(_types.none, array, array.place, array.kind) if isinstance(array, _Checked) else None
        )


def _read(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return context.unpack_value(builder, signature.args[0].kind, _place(context, builder, signature, arguments))


def _write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    place = _place(context, builder, signature, arguments)
    context.pack_value(builder, signature.args[0].kind, arguments[2], place)
    return context.get_dummy_value()


_imputils.lower_builtin(operator.getitem, _Checked, _types.Any)(_read)
_imputils.lower_builtin(operator.setitem, _Checked, _types.Any, _types.Any)(_write)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where a value is in memory, if the access is allowed."""
    array, index = signature.args[0], arguments[1]
    made = _cgutils.create_struct_proxy(array)(context, builder, value=arguments[0])
    stored = context.get_data_type(array.kind)
    item = _WORD(context.get_abi_sizeof(stored))
    if array.width > 1:
        row, column = (builder.extract_value(index, axis) for axis in range(2))
        index = builder.add(builder.mul(row, _WORD(array.width)), column)
    at = builder.add(made.offset, builder.mul(index, item))
    beyond = builder.icmp_signed(">", builder.add(at, item), made.size)
    beyond = builder.or_(beyond, builder.icmp_signed("<", at, _WORD(0)))
    with _cgutils.if_unlikely(builder, beyond):
        met = builder.add(builder.load(_word(builder, _MET)), _WORD(1))
        for word, value in ((_MET, met), (_AT, at), (_BYTES, made.size)):
            builder.store(value, _word(builder, word))
        why = "a kernel of the lane accesses memory that its owner does not have"
        context.call_conv.return_user_exc(builder, IndexError, (why,))
    return builder.inttoptr(builder.add(made.begin, at), stored.as_pointer())


def call(builder: Any, operation: Any, arguments: Sequence[Any]) -> Any:
    """Calls an operation; returns VIOLATED if it has raised."""
    place = _word(builder, _MET)
    before = builder.load(place)
    status = builder.call(operation, arguments)
    return builder.select(builder.icmp_signed("==", builder.load(place), before), status, _WORD(VIOLATED))


_TABLE = "penstock_lane_memories"
"""A function that says where the table is. Machine code is kept between processes, and each has a table of its own."""


def _word(builder: Any, at: int) -> Any:
    """The place of a word of the table."""
    find = _cgutils.get_or_insert_function(builder.module, ir.FunctionType(_WORD, []), _TABLE)
    return builder.gep(builder.inttoptr(builder.call(find, []), _WORD.as_pointer()), [_WORD(at)])


def _publish() -> Any:
    _llvm.initialize_native_target()
    _llvm.initialize_native_asmprinter()
    machine = _llvm.Target.from_default_triple().create_target_machine(jit=True)
    text = f"define i64 @{_TABLE}() {{ ret i64 {_table.ctypes.data} }}"
    engine = _llvm.create_mcjit_compiler(_llvm.parse_assembly(text), machine)
    engine.finalize_object()
    _llvm.add_symbol(_TABLE, engine.get_function_address(_TABLE))
    return engine


_published = _publish()
