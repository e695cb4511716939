"""One bench on two states of the code, in turns: `make bench-beside COMMIT=… BENCH=vwap`.

The other state is checked out into a directory of its own, and its code comes first on the path. Both have their own
compiled kernels, so the first run of each only makes these. What disturbs the machine disturbs both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from penstock.errors import InputError, PenstockError
from penstock_bench.benches import NAMES
from penstock_bench.benches.report import Report

_HERE = Path(__file__).parents[3]


def compare(commit: str, bench: str, rounds: int, report: Report) -> dict[str, Any]:
    """The median of each figure that is one number and not 0, before and now, and the second divided by the first."""
    if bench not in NAMES:
        raise InputError(f"there is no bench '{bench}': use one of {', '.join(sorted(NAMES))}")
    with _checked_out(commit) as there:
        states = {"before": there, "now": _HERE}
        taken: dict[str, list[dict[str, Any]]] = {name: [] for name in states}
        for number in range(rounds + 1):
            for name in states if number % 2 else reversed(states):
                report.step(f"{bench}: {name}, {f'round {number}' if number else 'to have the kernels'}")
                taken[name].append(_figures(states[name], bench))
    return {"bench": bench, "commit": commit, "rounds": rounds, "figures": _compared(taken["before"], taken["now"])}


def _compared(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Without the first run of each.

    >>> _compared([{"x": 9}, {"x": 2, "name": "a"}], [{"x": 9}, {"x": 3, "name": "a"}])
    {'x': {'before': 2, 'now': 3, 'ratio': 1.5}}
    """
    found = {}
    for field in now[-1]:
        one, other = (_median([run.get(field) for run in runs[1:]]) for runs in (before, now))
        if one and other is not None:
            found[field] = {"before": one, "now": other, "ratio": other / one}
    return found


def _median(values: list[Any]) -> float | None:
    """None where one is no number."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return median(numbers) if len(numbers) == len(values) else None


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-beside-") as directory:
        there = Path(directory) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(there), commit)
        try:
            yield there
        finally:
            _git("worktree", "remove", "--force", str(there))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", "-C", str(_HERE), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"git {arguments[0]} {arguments[1]}: {done.stderr.strip()}")


def _figures(tree: Path, bench: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "bench", bench, "--quick"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise PenstockError(f"the bench ended with code {done.returncode} in {tree}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(
    commit: Annotated[str, typer.Argument(help="The state to compare with: anything that git takes for a commit.")],
    bench: Annotated[str, typer.Argument(help="The bench, as in 'penstock bench'.")],
    rounds: Annotated[int, typer.Option(min=1, help="How often each is run.")] = 3,
) -> None:
    """Runs a bench on another commit and on the tree as it is, in turns."""
    report = Report(f"penstock bench {bench}, beside {commit}")
    try:
        found = compare(commit, bench, rounds, report)
    except PenstockError as error:
        raise SystemExit(f"penstock: {error}") from None
    rows = [(field, figure["before"], figure["now"], figure["ratio"]) for field, figure in found["figures"].items()]
    report.table(("figure", "before", "now", "ratio"), rows)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    typer.run(main)
