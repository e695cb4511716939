"""Numba compiles a kernel here, and the entry by which Python calls it is written around it.

Only a process that misses machine code imports this module: numba takes half a second to load. What is made here is
loaded by `machine_code`, in this process as in later ones.

Invariants:
1. An entry compares types with those of its arguments before it reads a value, so a wrong argument is never taken.
2. Arrays enter a kernel without an owner: the caller holds them during the call. So a kernel returns arrays that it
   made, and never a part of an argument; the entry refuses that.
3. Kernels that are called by kernels become no machine code of their own.

Why: docs/decisions/kernels-without-numba.md
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import numba
from llvmlite import ir
from numba.core import codegen, compiler_lock, cpu, registry, types
from numba.extending import intrinsic

from penstock.machine_code import FIXED, MachineCode, plain_name

_types: Any = types
_BYTE, _INT, _WORD, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
_POINTER = _BYTE.as_pointer()
_OBJECTS = _POINTER.as_pointer()

# Where the parts of Python's and numpy's objects lie, in bytes, on machines of 64 bits. Compiled modules rely on them.
_TYPE, _VALUE, _ITEMS = 8, 16, tuple.__basicsize__
_DATA, _DIMENSIONS, _SHAPE, _STRIDES, _DTYPE, _FLAGS = 16, 24, 32, 40, 56, 64
_CONTIGUOUS, _FORTRAN, _WRITEABLE = 1, 2, 0x400


class _Library(codegen.CPUCodeLibrary):
    """Optimised code that is linked into callers or into an entry, and is never run from here."""

    def get_pointer_to_function(self, name: str) -> int:
        cast(Any, self)._ensure_finalized()
        return 0

    def _finalize_specific(self) -> None:
        pass


class _Codegen(codegen.JITCPUCodegen):
    _library_class: Any = _Library

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: object) -> None:
        pass


class _Target(registry.CPUTarget):
    """Numba's own target, with another place for the code."""

    def __init__(self) -> None:
        cast(Any, super()).__init__("cpu")
        shared: Any = registry.cpu_target
        self._typing = shared.typing_context
        self._context: cpu.CPUContext = shared.target_context.subtarget(
            _internal_codegen=cast(Any, _Codegen)("penstock")
        )

    @property
    def typing_context(self) -> Any:
        return self._typing

    @property
    def target_context(self) -> Any:
        return self._context


class _Dispatcher(registry.CPUDispatcher):
    targetdescr = _Target()


def dispatcher(function: Callable[..., object], options: dict[str, Any]) -> Any:
    """What numba calls a function that it can compile for many types."""
    flags = {
        "nopython": True,
        "nogil": True,
        "error_model": "numpy",
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
    }
    return _Dispatcher(function, targetoptions={**flags, **options})


def intrinsic_type(function: Callable[..., object]) -> Any:
    """The type of a function that generates its own instructions."""
    context: Any = _Dispatcher.targetdescr.typing_context
    made = intrinsic(function)
    context.refresh()
    return context.resolve_value_type(made)


def compiled(kernel: Any, arguments: Sequence[object]) -> MachineCode:
    """The machine code of a kernel, given its dispatcher, for arguments of these types."""
    with cast(Any, compiler_lock.global_compiler_lock):
        taken = tuple(cast(Any, numba).typeof(argument) for argument in arguments)
        kernel.compile(taken)
        return _Entry(kernel.overloads[taken], taken).machine_code()


class _Entry:
    """Writes PyObject *entry(PyObject *known, PyObject **arguments, Py_ssize_t count)."""

    def __init__(self, result: Any, taken: tuple[Any, ...]) -> None:
        self._result, self._taken = result, taken
        self._known: list[str] = []
        self._context = result.target_context
        self._module = self._context.create_module("entry")
        self._name = f"penstock_{secrets.token_hex(16)}"  # no two entries of a process have the same
        shape = ir.FunctionType(_POINTER, [_POINTER, _OBJECTS, _WORD])
        self._function = ir.Function(self._module, shape, self._name)
        self._builder = ir.IRBuilder(self._function.append_basic_block())
        self._mismatch = self._function.append_basic_block("mismatch")

    def machine_code(self) -> MachineCode:
        self._write()
        if all(isinstance(kind, _types.Number) for kind in (*self._taken, self._result.signature.return_type)):
            self._write_plain()
        library = self._context.codegen().create_library(self._name)
        library.add_ir_module(self._module)
        library.add_linking_library(self._result.library)
        self._context.post_lowering(self._module, library)
        library.finalize()
        module = library._final_module
        needed = [one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")]
        code = library._codegen._tm.emit_object(module)
        return MachineCode(code, self._name, tuple(self._known), tuple(needed))

    def _write(self) -> None:
        builder = self._builder
        _, given, count = self._function.args
        self._unless(builder.icmp_signed("==", count, _WORD(len(self._taken))))
        values = [
            self._taken_from(kind, builder.load(builder.gep(given, [_WORD(at)])), f"argument:{at}")
            for at, kind in enumerate(self._taken)
        ]
        result = self._result
        function = self._context.declare_function(self._module, result.fndesc)
        thread = self._python("PyEval_SaveThread", _POINTER)
        status, value = self._context.call_conv.call_function(
            builder, function, result.signature.return_type, self._taken, values
        )
        self._python("PyEval_RestoreThread", ir.VoidType(), thread)
        with builder.if_then(builder.not_(status.is_ok), likely=False):
            self._fail(status)
        builder.ret(self._object_of(result.signature.return_type, value))

        builder.position_at_end(self._mismatch)
        builder.ret(self._called(self._item(0), given, count))

    def _write_plain(self) -> None:
        """A function of numbers also gets an entry as a C function, for machine code that calls it by its address."""
        returned, types = self._result.signature.return_type, [self._context.get_value_type(one) for one in self._taken]
        shape = ir.FunctionType(self._context.get_value_type(returned), types)
        function = ir.Function(self._module, shape, plain_name(self._name))
        builder = ir.IRBuilder(function.append_basic_block())
        kernel = self._context.declare_function(self._module, self._result.fndesc)
        call = self._context.call_conv.call_function
        builder.ret(call(builder, kernel, returned, self._taken, function.args)[1])

    def _taken_from(self, kind: Any, given: Any, dtype: str) -> Any:
        """The value of an argument, after a look at its type."""
        builder = self._builder
        if isinstance(kind, _types.Array):
            return self._array_from(kind, given, dtype)
        type_of = self._part(given, _TYPE, _POINTER)
        numpy = self._is_known(type_of, f"scalar:{_dtype_name(kind)}")
        if kind == _types.float64:
            self._unless(builder.or_(self._is_known(type_of, "python:float"), numpy))
            return self._part(given, _VALUE, _DOUBLE)
        stored = self._context.get_data_type(kind)
        if kind not in (_types.int64, _types.boolean):
            self._unless(numpy)
            return self._context.unpack_value(builder, kind, self._address(given, _VALUE, stored))
        # A number of Python, or one of numpy.
        read, plain, done = (self._function.append_basic_block() for _ in range(3))
        builder.cbranch(numpy, read, plain)
        builder.position_at_end(read)
        found = self._context.unpack_value(builder, kind, self._address(given, _VALUE, stored))
        read = builder.block
        builder.branch(done)
        builder.position_at_end(plain)
        if kind == _types.boolean:
            self._unless(self._is_known(type_of, "python:bool"))
            number = self._is_known(given, "python:true")
        else:
            self._unless(self._is_known(type_of, "python:int"))
            beyond = builder.alloca(_INT)
            number = self._python("PyLong_AsLongLongAndOverflow", _WORD, given, beyond)
            self._unless(builder.icmp_signed("==", builder.load(beyond), _INT(0)))
        plain = builder.block
        builder.branch(done)
        builder.position_at_end(done)
        chosen = builder.phi(found.type)
        chosen.add_incoming(found, read)
        chosen.add_incoming(number, plain)
        return chosen

    def _array_from(self, kind: Any, given: Any, dtype: str) -> Any:
        builder = self._builder
        self._unless(builder.icmp_unsigned("==", self._part(given, _TYPE, _POINTER), self._item(2)))
        self._unless(self._is_known(self._part(given, _DTYPE, _POINTER), dtype))
        self._unless(builder.icmp_signed("==", self._part(given, _DIMENSIONS, _INT), _INT(kind.ndim)))
        looked = _WRITEABLE | (_CONTIGUOUS if kind.layout == "C" else _CONTIGUOUS | _FORTRAN)
        wanted = {"C": _CONTIGUOUS, "F": _FORTRAN, "A": 0}[kind.layout]
        wanted |= _WRITEABLE if kind.mutable else 0
        flags = builder.and_(self._part(given, _FLAGS, _INT), _INT(looked))
        self._unless(builder.icmp_signed("==", flags, _INT(wanted)))

        array = self._context.make_array(kind)(self._context, builder)
        shape = self._part(given, _SHAPE, _WORD.as_pointer())
        strides = self._part(given, _STRIDES, _WORD.as_pointer())
        sizes = [builder.load(builder.gep(shape, [_WORD(at)])) for at in range(kind.ndim)]
        steps = [builder.load(builder.gep(strides, [_WORD(at)])) for at in range(kind.ndim)]
        items: Any = _WORD(1)
        for size in sizes:
            items = builder.mul(items, size)
        array.meminfo, array.parent = (part.type(None) for part in (array.meminfo, array.parent))
        array.nitems, array.itemsize = (
            items,
            _WORD(self._context.get_abi_sizeof(self._context.get_data_type(kind.dtype))),
        )
        array.data = self._part(given, _DATA, array.data.type)
        array.shape = ir.Constant(array.shape.type, ir.Undefined)
        array.strides = ir.Constant(array.strides.type, ir.Undefined)
        for at in range(kind.ndim):
            array.shape = builder.insert_value(array.shape, sizes[at], at)
            array.strides = builder.insert_value(array.strides, steps[at], at)
        return array._getvalue()

    def _object_of(self, kind: Any, value: Any) -> Any:
        """The Python object for what the kernel returns."""
        builder = self._builder
        if kind == _types.none:
            return self._owned(self._known_item("python:none"))
        if isinstance(kind, _types.BaseTuple):
            made = self._python("PyTuple_New", _POINTER, _WORD(len(kind)))
            for at, part in enumerate(kind):
                item = self._object_of(part, builder.extract_value(value, at))
                self._python("PyTuple_SetItem", _INT, made, _WORD(at), item)
            return made
        if isinstance(kind, _types.Array):
            return self._object_of_array(kind, value)
        if kind == _types.boolean:
            true, false = self._known_item("python:true"), self._known_item("python:false")
            return self._owned(builder.select(value, true, false))
        if isinstance(kind, _types.Integer):
            wide = (builder.sext if kind.signed else builder.zext)(value, _WORD) if kind.bitwidth < 64 else value
            return self._python("PyLong_FromLongLong" if kind.signed else "PyLong_FromUnsignedLongLong", _POINTER, wide)
        if isinstance(kind, _types.Float):
            double = builder.fpext(value, _DOUBLE) if kind.bitwidth < 64 else value
            return self._python("PyFloat_FromDouble", _POINTER, double)
        raise TypeError(f"a kernel returns numbers, arrays that it made and tuples of these, not {kind}")

    def _object_of_array(self, kind: Any, value: Any) -> Any:
        builder = self._builder
        array = self._context.make_array(kind)(self._context, builder, value=value)
        with builder.if_then(builder.icmp_unsigned("==", array.meminfo, array.meminfo.type(None)), likely=False):
            builder.ret(self._called(self._item(1), _OBJECTS(None), _WORD(0)))
        place = builder.bitcast(array._getpointer(), _POINTER)
        dtype = self._known_item(f"dtype:{_dtype_name(kind.dtype)}")
        how = (place, self._item(2), _INT(kind.ndim), _INT(1), dtype)
        made = self._python("NRT_adapt_ndarray_to_python_acqref", _POINTER, *how)
        self._context.nrt.decref(builder, kind, value)
        return made

    def _fail(self, status: Any) -> None:
        builder = self._builder
        information = [builder.gep(status.excinfoptr, [_INT(0), _INT(at)]) for at in range(2)]
        pickled, size = (builder.load(part) for part in information)
        data = self._python("PyBytes_FromStringAndSize", _POINTER, pickled, builder.zext(size, _WORD))
        place = builder.alloca(_POINTER)
        builder.store(data, place)
        builder.ret(self._called(self._item(1), place, _WORD(1)))

    def _unless(self, holds: Any) -> None:
        """Goes on if this holds, and leaves the call to `otherwise` if not."""
        following = self._function.append_basic_block()
        self._builder.cbranch(holds, following, self._mismatch)
        self._builder.position_at_end(following)

    def _is_known(self, found: Any, name: str) -> Any:
        return self._builder.icmp_unsigned("==", found, self._known_item(name))

    def _known_item(self, name: str) -> Any:
        if name not in self._known:
            self._known.append(name)
        return self._item(FIXED + self._known.index(name))

    def _item(self, at: int) -> Any:
        return self._part(self._function.args[0], _ITEMS + 8 * at, _POINTER)

    def _part(self, thing: Any, offset: int, kind: Any) -> Any:
        return self._builder.load(self._address(thing, offset, kind))

    def _address(self, thing: Any, offset: int, kind: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(thing, [_WORD(offset)]), kind.as_pointer())

    def _called(self, function: Any, arguments: Any, count: Any) -> Any:
        return self._python("PyObject_Vectorcall", _POINTER, function, arguments, count, _POINTER(None))

    def _owned(self, thing: Any) -> Any:
        self._python("Py_IncRef", ir.VoidType(), thing)
        return thing

    def _python(self, name: str, returned: Any, *arguments: Any) -> Any:
        if name not in self._module.globals:
            ir.Function(self._module, ir.FunctionType(returned, [one.type for one in arguments]), name)
        return self._builder.call(self._module.globals[name], arguments)


def _dtype_name(kind: Any) -> str:
    return "bool" if kind == _types.boolean else str(kind)
