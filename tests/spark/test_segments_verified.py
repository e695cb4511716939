"""Segments beside a checkpoint are verified without Spark, and damage is told with the queries that need them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from penstock.cli.state import show_state
from penstock.errors import CheckpointError
from penstock.spark.verify import verify_files

from .by_hand import Run

SECOND = 1_000_000
PROGRAM = """
    CREATE STREAM s (t TIMESTAMP, k STRING, v DOUBLE, EVENT TIME t);
    CREATE QUERY long AS SELECT k, SUM(v) AS x FROM s [RANGE 1 DAY SLIDE 1 HOUR] GROUP BY k;
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkpoint as Spark and its buckets leave it, but for Spark's state store."""
    run = Run(PROGRAM, random.Random(0), tmp_path / "penstock" / "segments", memory=3_000_000)
    events = [{"t": i * SECOND, "k": "abc"[i % 3], "v": i / 7} for i in range(60_000)]
    run.settle(run.attempt(0, [{"s": events}]), commit=True)
    share = run.buckets[0].label.partition(".")[0]
    for bucket in (tmp_path / "penstock" / "segments" / "query").iterdir():
        bucket.rename(bucket.with_name(bucket.name.replace(share, f"{share}-0")))
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("")
    query = {"text": "", "fingerprint": "", "spread": "by key", "share": share}
    plan = {"version": 1, "streams": {}, "bounded": False, "shares": {}, "gone": {}, "queries": {"long": query}}
    (tmp_path / "penstock" / "plan.json").write_text(json.dumps(plan))
    return tmp_path


def test_whole_segments(place: Path) -> None:
    verified = verify_files(str(place))
    files = list(place.rglob("*.segment"))
    assert verified.blocks > len(files) > 0
    states = list(place.rglob("*.state"))
    assert verified.parts == len(states) > 0
    assert verified.nbytes + 12 * verified.blocks == sum(file.stat().st_size for file in [*files, *states])
    assert verified.damaged == ()


@pytest.mark.parametrize("whole", [False, True], ids=["truncated", "a flipped bit"])
def test_damage_is_told_with_its_queries(place: Path, whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(iter(place.rglob("*.segment")))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data if whole else data[:1000])
    (damage,) = verify_files(str(place)).damaged
    assert (damage.block, damage.rows, damage.queries) == (0, None, ("long",))
    assert ("its checksum does not fit" if whole else "the file is truncated") in damage.reason
    assert not show_state(str(place), as_json=False, verify=True)
    assert "needed by long" in capsys.readouterr().out


@pytest.mark.parametrize("whole", [False, True], ids=["truncated", "a flipped bit"])
def test_so_is_damage_of_a_state(place: Path, whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(iter(place.rglob("*.state")))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data if whole else data[:1000])
    (damage,) = verify_files(str(place)).damaged
    assert (damage.store, damage.block, damage.queries) == (f"state of bucket {file.parent.name}", 0, ("long",))
    assert file.name in damage.reason
    assert ("checksum does not fit" if whole else "in the middle of a part") in damage.reason
    assert not show_state(str(place), as_json=False, verify=True)
    assert "needed by long" in capsys.readouterr().out


def test_a_checkpoint_without_a_query(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no streaming query yet"):
        verify_files(str(tmp_path))
