"""The one way to compile a hot loop: numba, cached on disk, without the GIL.

A kernel has a fixed signature (plain numpy arrays and scalars), so nothing is compiled per query. Write kernels as
module-level functions. `kernel_cache` says where their machine code is kept. Numba is loaded only when a kernel has to
be compiled: machine code from the cache is called directly (`machine_code`).

Why: docs/decisions/kernels-without-numba.md
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., object])

_ENGINE = Path(__file__).parent
_LARGEST = 2**63
_lock = threading.RLock()


class Kernel:
    """A function that runs as machine code. A call goes to the entry that was loaded last.

    Each entry hands arguments of other types on to the entry before it. Behind the first one is `_enter`, which loads
    or compiles one more.
    """

    __slots__ = ("__call__", "__dict__")

    def __init__(self, function: Callable[..., object], options: dict[str, Any]) -> None:
        self.py_func, self.targetoptions = function, options
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self._cache: Any = None
        self._dispatcher: Any = None
        self._entries: dict[str, Callable[..., Any]] = {}
        self._addresses: dict[str, int] = {}
        self.__call__: Callable[..., Any] = self._enter

    def _enter(self, *arguments: Any) -> Any:
        taken = [_plain(argument) for argument in arguments]
        types = _types_of(taken)
        with _lock:
            if types not in self._entries:
                self._entries[types] = self.__call__ = self._loaded(types, taken)
        return self._entries[types](*taken)

    def _loaded(self, types: str, arguments: list[Any]) -> Callable[..., Any]:
        from penstock.machine_code import callable_of

        return callable_of(self._machine_code(types, arguments), self.__name__, self.__call__, arguments)

    def address(self, *arguments: Any) -> int:
        """Where a C function for arguments of such types begins; they and what it returns are numbers."""
        from penstock.machine_code import plain_address

        types = _types_of(arguments)
        with _lock:
            if types not in self._addresses:
                self._addresses[types] = plain_address(self._machine_code(types, arguments))
            return self._addresses[types]

    def _machine_code(self, types: str, arguments: Sequence[Any]) -> Any:
        from penstock.kernel_cache import KernelCache

        if self._cache is None:
            self._cache = KernelCache(self.py_func, _place_for(self.__module__.partition(".")[0]))
        if (machine := self._cache.load(types)) is None:
            from penstock.compiling import compiled

            machine = compiled(self.dispatcher, arguments)
            self._cache.save(types, machine)
        return machine

    @property
    def dispatcher(self) -> Any:
        """The kernel as numba knows it."""
        if self._dispatcher is None:
            from penstock.compiling import dispatcher

            self._dispatcher = dispatcher(self.py_func, self.targetoptions)
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for when a kernel calls this one."""
        return self.dispatcher._numba_type_

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.__name__}>"


class _Intrinsic:
    """A function that generates its own instructions, as numba finds it in a kernel."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @functools.cached_property
    def _numba_type_(self) -> Any:
        from penstock.compiling import intrinsic_type

        return intrinsic_type(self._function)

    def __call__(self, *arguments: object) -> Any:
        raise TypeError(f"{self._function.__name__} is called by kernels only, not by Python")

    def __deepcopy__(self, memo: object) -> _Intrinsic:
        return self


def kernel(function: Function) -> Function:
    """Compiles on first use and caches; wraparound and bounds checks are off, division by zero does not raise."""
    return cast(Function, Kernel(function, {}))


def inline(function: Function) -> Function:
    """A kernel that is always inlined into its callers."""
    return cast(Function, Kernel(function, {"inline": "always"}))


def tight(function: Function) -> Function:
    """A kernel that allocates nothing and calls only tight kernels.

    Numba then counts no references to its arrays. Those counts are atomic, and in a loop that calls helpers they cost
    more than the work (a monotonic deque: 18 M events/s with them, 45 M without).
    """
    return cast(Function, Kernel(function, {"_nrt": False}))


def intrinsic(function: Callable[..., object]) -> Callable[..., Any]:
    """A function that generates its own instructions; kernels call it without its first parameter."""
    return _Intrinsic(function)


def _plain(argument: Any) -> Any:
    """The argument, with the one object that stands for its type in entries."""
    from penstock.machine_code import dtype_of

    if isinstance(argument, np.ndarray):
        return np.asarray(argument).view(dtype_of(argument))
    return np.dtype(argument.dtype.str).type(argument) if isinstance(argument, np.generic) else argument


def _types_of(arguments: Sequence[Any]) -> str:
    return ", ".join([_type_of(argument) for argument in arguments])


def _type_of(argument: Any) -> str:
    """What a kernel is compiled for: the same for all arguments that one entry takes."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        how = f"{layout}{'w' * flags.writeable}"
        return f"{argument.dtype.descr if argument.dtype.names else argument.dtype.str}[{argument.ndim}{how}]"
    if isinstance(argument, np.generic):
        return argument.dtype.name
    if type(argument) is int and not -_LARGEST <= argument < _LARGEST:
        raise OverflowError(f"{argument} is no number of 64 bits")
    if type(argument) in (int, float, bool):
        return {int: "int64", float: "float64", bool: "bool"}[type(argument)]
    raise TypeError(f"a kernel takes arrays and numbers, not {type(argument).__name__}")


@functools.cache
def _place_for(package: str) -> Path | None:
    """Where the kernels of a package are kept. Those of a module that is no package are kept with the engine's."""
    from penstock.kernel_cache import place_of

    found = getattr(sys.modules.get(package), "__path__", None)
    directory = Path(next(iter(found))) if found else _ENGINE
    return place_of(_ENGINE) if directory == _ENGINE else place_of(directory, _ENGINE)


@intrinsic
def leading_zeros(typing: Any, word: Any) -> Any:
    """How many bits of a word come before its first set bit. For kernels only."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], context.get_constant(numba_types().boolean, False))

    return word(word), generate


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """How many bits of a word come behind its last set bit. For kernels only."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(numba_types().boolean, False))

    return word(word), generate


@intrinsic
def bit_count(typing: Any, word: Any) -> Any:
    """How many bits of a word are set. For kernels only."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), generate


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Has the processor fetch what lies at an address, for a loop that comes to it a few turns later. For kernels only.

    Loops that jump about in memory wait for most of it; those that know where they will jump need not.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch.p0", (), function)
        builder.call(fetch, [builder.inttoptr(arguments[0], byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    types = numba_types()
    return types.void(types.int64), generate


@intrinsic
def move_bytes(typing: Any, to: Any, source: Any, count: Any) -> Any:
    """Copies bytes from one address to another; the two stretches may overlap. For kernels only.

    A loop that shifts entries by one place moves one word at a time.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        byte, word = ir.IntType(8).as_pointer(), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [byte, byte, word, ir.IntType(1)])
        move = builder.module.declare_intrinsic("llvm.memmove.p0.p0.i64", (), function)
        places = [builder.inttoptr(one, byte) for one in arguments[:2]]
        builder.call(move, [*places, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    types = numba_types()
    return types.void(types.int64, types.int64, types.int64), generate


def numba_types() -> Any:
    """The types in which an intrinsic says what it takes and returns."""
    from numba.core import types

    return types
