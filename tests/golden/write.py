"""Writes the checkpoints of a release: `PYTHONPATH=tests python -m golden.write NAME` makes
`checkpoints/NAME.tar.xz`.

Run it once for every release whose state differs from the last one's; never write an archive of a release anew.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from .programs import PROGRAMS
from .runs import written, written_in_buckets

ARCHIVES = Path(__file__).parent / "checkpoints"


def write(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for program in PROGRAMS:
            written(program, root / "embedded" / program.name)
            if program.on_spark:
                written_in_buckets(program, root / "spark" / program.name)
        archive.parent.mkdir(exist_ok=True)
        with tarfile.open(archive, "x:xz", preset=9) as tar:
            tar.add(root, ".", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owners and times. The lock of the process that wrote it is no part of a checkpoint."""
    if member.name.endswith(".lock"):
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    (release,) = sys.argv[1:]
    write(ARCHIVES / f"{release}.tar.xz")
