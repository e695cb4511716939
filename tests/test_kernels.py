"""Kernels as Python calls them: what an entry takes and returns is what the function itself would."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.jit import Kernel, kernel


@kernel
def described(values: Any, factor: Any) -> tuple[int, float, bool, int]:
    total = 0.0
    for at in range(len(values)):
        total += values[at] * factor
    return len(values), total, total > 0, int(total)


@kernel
def doubled(values: Any) -> Any:
    made = np.empty(len(values), values.dtype)
    for at in range(len(values)):
        made[at] = 2 * values[at]
    return made


@kernel
def halves(values: Any) -> tuple[Any, Any]:
    made = values.copy()
    return made[: len(made) // 2], made[len(made) // 2 :]


@kernel
def first_rows(values: Any) -> Any:
    return values[:1]


@kernel
def same(value: Any) -> Any:
    return value


@kernel
def fill(values: Any, value: Any) -> None:
    for at in range(len(values)):
        values[at] = value


@kernel
def room_for(rows: int) -> Any:
    return np.empty(rows, np.int64)


@kernel
def sums(values: Any) -> Any:
    made = np.zeros(values.shape[0], np.int64)
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            made[row] += values[row, column]
    return made


@kernel
def of_field(rows: Any) -> int:
    total = 0
    for row in rows:
        total += row.count
    return total


NUMBERS = np.arange(6, dtype=np.int64)


@pytest.mark.parametrize(
    "values",
    [NUMBERS, NUMBERS.astype(np.int32), NUMBERS[::2], NUMBERS[::-1], NUMBERS[:0], NUMBERS.astype(np.float64)],
    ids=["words", "narrow", "strided", "backwards", "none", "floats"],
)
@pytest.mark.parametrize("factor", [2, -1.5, np.int64(3), np.float64(0.5), np.uint8(200), True, np.bool_(False)])
def test_arguments_of_any_type_are_taken_as_they_are(values: Any, factor: Any) -> None:
    expected = sum(float(value) * float(factor) for value in values)
    for _ in range(2):  # the first call loads, the second one goes through the entries
        assert described(values, factor) == (len(values), expected, expected > 0, int(expected))


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**63 - 1, -(2**63), 0.5, float("inf"), True, False, np.uint64(2**64 - 1), np.int8(-3), np.float32(0.5)],
)
def test_a_value_comes_back(value: Any) -> None:
    for _ in range(2):
        found = same(value)
        assert found == value
        assert type(found) is type(value if not isinstance(value, np.generic) else value.item())


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64, np.float32, np.bool_, np.uint64])
def test_arrays_that_a_kernel_makes_are_owned(dtype: Any) -> None:
    values = np.array([0, 1, 1, 0], dtype)
    made = [doubled(values) for _ in range(100)]
    halved = [halves(np.arange(1000) + at) for at in range(100)]
    assert all(one.dtype == dtype and one.tolist() == (values * dtype(2)).tolist() for one in made)
    for at, (left, right) in enumerate(halved):
        assert np.concatenate((left, right)).tolist() == list(range(at, at + 1000))


def test_arrays_are_changed_in_place_and_read_only_ones_are_read() -> None:
    values = np.zeros(3)
    fill(values, 2.5)
    fill(values[1:2], np.float64(1.0))
    assert values.tolist() == [2.5, 1.0, 2.5]
    values.flags.writeable = False
    assert described(values, 1)[1] == 6.0


def test_arrays_of_two_dimensions_have_their_layout() -> None:
    table = np.arange(6).reshape(2, 3)
    for one in (table, np.asfortranarray(table), table[:, ::2], table.T):
        assert sums(one).tolist() == one.sum(axis=1).tolist()


def test_other_objects_for_the_same_type_are_the_same_type() -> None:
    values = NUMBERS.view(np.longlong)
    for _ in range(2):
        assert described(values, np.longlong(2)) == described(NUMBERS, 2)
    for _ in range(2):
        rows = np.zeros(3, np.dtype([("count", np.int64), ("share", np.float64)]))
        rows["count"] = [1, 2, 3]
        assert of_field(rows) == 6


def test_an_array_of_another_class_is_taken(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "rows", np.int64, "w+", shape=3)
    fill(mapped, 7)
    assert np.asarray(mapped).tolist() == [7, 7, 7]


def test_errors_inside_and_wrong_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        room_for(-1)
    with pytest.raises(MemoryError):
        room_for(2**58)
    with pytest.raises(SystemError, match="part of its argument"):
        first_rows(NUMBERS)
    with pytest.raises(TypeError, match="not str"):
        described(NUMBERS, "2")
    with pytest.raises(OverflowError):
        described(NUMBERS, 2**63)
    assert described(NUMBERS, 2)[0] == 6


def test_threads_that_call_at_once_get_their_own_answers() -> None:
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        found[number] = [doubled(np.arange(number, number + 100))[0] for _ in range(200)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [2 * number] * 200 for number in range(4)}


@kernel
def scaled(number: int, factor: float) -> float:
    return number * factor


def test_a_kernel_of_numbers_has_an_address() -> None:
    assert isinstance(scaled, Kernel)
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(scaled.address(0, 0.0))
    assert [function(number, 0.25) for number in (0, -3, 2**53)] == [0.0, -0.75, 2.0**51]
    assert scaled(4, 0.5) == 2.0


def test_a_kernel_may_outlive_its_module() -> None:
    """When a process ends, modules go before the functions that cycles hold. Python looks at these once more."""
    script = """if True:
        import ctypes, gc
        import numpy as np
        from penstock import machine_code
        from test_kernels import fill
        fill(np.zeros(3, np.int64), 1)
        vars(machine_code).clear()
        gc.collect()
        taken = [(ctypes.c_char * 32).from_buffer_copy(bytes([255] * 32)) for _ in range(100_000)]
        gc.collect()
        fill(np.zeros(3, np.int64), 1)
    """
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
