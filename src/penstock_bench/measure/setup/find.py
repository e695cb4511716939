"""The setup that a user names: a file, or one that comes with Penstock; with parameters as they are written."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import InputError
from penstock_bench.measure.setup.generators import Scalar
from penstock_bench.measure.setup.read import read_text
from penstock_bench.workloads import micro


def find_setup(named: str) -> Path:
    """The file of that name, or the microbenchmark of that name."""
    path = Path(named)
    if path.suffix == ".toml" or path.exists():
        return path
    if named in micro.names():
        return micro.setup_file(named)
    raise InputError(f"there is no setup '{named}'; give a file SETUP.toml, or one of {', '.join(micro.names())}")


def assignments(settings: Sequence[str]) -> dict[str, Scalar]:
    """`window=500` as it is given on the command line; the setup knows the type.

    >>> assignments(["window=500", "function=SUM"])
    {'window': '500', 'function': 'SUM'}
    """
    for setting in settings:
        if not setting.partition("=")[0].strip() or "=" not in setting:
            raise InputError(f"--set {setting}: write NAME=VALUE, as in --set window=500")
    return {name.strip(): value.strip() for name, _, value in (setting.partition("=") for setting in settings)}


def quick_parameters(path: Path) -> dict[str, Scalar]:
    """What a setup says of a short run of itself."""
    try:
        quick = tomllib.loads(read_text(path)).get("quick", {})
    except tomllib.TOMLDecodeError:
        return {}  # told where the setup itself is read
    return dict(quick) if isinstance(quick, dict) else {}
