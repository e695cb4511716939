"""`python -m penstock_bench.benches NAME [--quick]` measures; `--document FILE` runs all benches, each in a process
of its own, and writes their figures into the document."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock_bench.benches import NAMES, run
from penstock_bench.benches.document import write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock_bench.benches", description="Measure the engine.")
    parser.add_argument("name", nargs="?", choices=list(NAMES))
    parser.add_argument("--quick", action="store_true", help="a smaller run that ends within 40 seconds")
    parser.add_argument("--document", type=Path, metavar="FILE", help="run all and write the figures between the marks")
    parser.add_argument("--output", type=Path, metavar="DIR", help="keep the JSON as DIR/NAME.json")
    given = parser.parse_args()
    if given.document is not None:
        write(given.document, quick=given.quick)
    elif given.name is not None:
        run(given.name, given.quick, given.output)
    else:
        for name, what in NAMES.items():
            print(f"{name:12} {what}")


if __name__ == "__main__":
    main()
