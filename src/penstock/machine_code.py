"""Machine code of kernels becomes functions of Python, without numba.

A kernel's object code has one entry that is a built-in function of Python: it looks at its arguments, calls the loop
without the GIL and makes Python values of what the loop returns. `compiling` writes such object code.

Invariants:
1. An entry takes exactly the types that it was compiled for. Other arguments go on to its `otherwise` untouched.
2. Only symbols that this process has are linked: those of Python, of the C library and of numba's memory manager, whose
   extension module is loaded alone.
3. Machine code is never unloaded.

Why: docs/decisions/kernels-without-numba.md
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import llvmlite.binding
import numpy as np

_llvm: Any = llvmlite.binding
_MEMORY = "numba.core.runtime._nrt_python"
_FASTCALL = 0x80

FIXED = 3
"""The first objects that an entry knows: `otherwise`, what raises its errors, and the type of arrays."""


@dataclass(frozen=True)
class MachineCode:
    """Object code, the name of its entry, and which objects the entry knows besides the fixed ones, by name."""

    code: bytes
    entry: str
    known: tuple[str, ...]
    needed: tuple[str, ...]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_PYTHON = {"int": int, "float": float, "bool": bool, "true": True, "false": False, "none": None}
_linked: set[str] = set()
_records: dict[np.dtype[Any], np.dtype[Any]] = {}
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def callable_of(
    machine: MachineCode, name: str, otherwise: Callable[..., Any], arguments: Sequence[object]
) -> Callable[..., Any]:
    """The entry as a function. `arguments` are of the types that it was compiled for."""
    known = (otherwise, _fail, np.ndarray, *(_known(one, arguments) for one in machine.known))
    method = _Method(name.encode(), _address(machine, machine.entry), _FASTCALL, None)
    _keep(method)
    return cast(Callable[..., Any], _new_function(ctypes.addressof(method), known, None))


def plain_name(entry: str) -> str:
    """The name of the C function beside an entry, which kernels have that take and return numbers."""
    return f"{entry}_plain"


def plain_address(machine: MachineCode) -> int:
    """Where that function is."""
    return _address(machine, plain_name(machine.entry))


def _address(machine: MachineCode, symbol: str) -> int:
    engine = _engine()
    if machine.entry not in _linked:
        if missing := [needed for needed in machine.needed if not _llvm.address_of_symbol(needed)]:
            raise RuntimeError(f"a kernel needs symbols that this process does not have: {', '.join(missing)}")
        engine.add_object_file(_llvm.ObjectFileRef.from_data(machine.code))
        engine.finalize_object()
        _linked.add(machine.entry)
    return int(engine.get_function_address(symbol))


def dtype_of(array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The dtype that entries compare with: there may be several objects for one type."""
    dtype: np.dtype[Any] = array.dtype
    return _records.setdefault(dtype, dtype) if dtype.names else np.dtype(dtype.str)


def host() -> str:
    """What object code of this machine depends on."""
    features = _llvm.get_host_cpu_features().flatten()
    return f"{_llvm.get_process_triple()} {_llvm.get_host_cpu_name()} {features}"


def _known(name: str, arguments: Sequence[object]) -> object:
    kind, _, what = name.partition(":")
    if kind == "argument":
        return dtype_of(cast(Any, arguments[int(what)]))
    if kind == "dtype":
        return np.dtype(what)
    return _PYTHON[what] if kind == "python" else np.dtype(what).type


def _fail(pickled: bytes | None = None) -> None:
    """Raises the error that is part of the object code. Without one, an array that is returned has no owner."""
    if pickled is None:
        raise SystemError("a kernel returns a part of its argument")
    kind, arguments = pickle.loads(pickled)[:2]
    raise kind(*(arguments or ()))


@functools.cache
def _engine() -> Any:
    _llvm.initialize_native_target()
    _llvm.initialize_native_asmprinter()
    for name, address in cast(Any, _memory()).c_helpers.items():
        _llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
    module = _llvm.parse_assembly(f'target triple = "{_llvm.get_process_triple()}"')
    machine = _llvm.Target.from_default_triple().create_target_machine(jit=True)
    return _keep(_llvm.create_mcjit_compiler(module, machine))


def _keep(thing: Any) -> Any:
    """What functions need for as long as they live. When a process ends, they may outlive this module."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _memory() -> ModuleType:
    """Numba's memory manager. Numba takes it from `sys.modules`, too, if it is imported later."""
    if found := sys.modules.get(_MEMORY):
        return found
    numba = importlib.util.find_spec("numba")
    assert numba is not None
    assert numba.origin is not None
    directory = Path(numba.origin).parent / "core" / "runtime"
    finder = importlib.machinery.FileFinder(
        str(directory), (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
    )
    spec = finder.find_spec("_nrt_python")
    assert spec is not None
    assert spec.origin is not None
    loader = importlib.machinery.ExtensionFileLoader(_MEMORY, spec.origin)
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(_MEMORY, loader, origin=spec.origin))
    loader.exec_module(module)
    sys.modules[_MEMORY] = module
    return module
