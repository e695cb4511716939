"""Windows over one stream that meet again in one query: a long silence takes little memory, in any cut and after a
restart."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.stepping import meeting_slides
from penstock.lang import parse
from penstock.plan.build import build

SECOND = 1_000_000
STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, x DOUBLE, EVENT TIME t UNIT SECONDS);"
COUNTED = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 MINUTES SLIDE {} SECONDS] GROUP BY k"
TEXTS = {
    "lengths": "SELECT k, COUNT(*) OVER [RANGE 5 MINUTES] AS m, COUNT(*) AS n "
    "FROM s [RANGE 10 MINUTES SLIDE 1 SECOND] GROUP BY k",
    "union": f"{COUNTED.format(1)} UNION ALL {COUNTED.format(2)}",
}
GROUPS = 200
ROWS = {"lengths": 600 * GROUPS + 1, "union": 900 * GROUPS + 2}


@pytest.mark.parametrize("kind", ["lengths", pytest.param("union", marks=pytest.mark.slow)])
def test_a_silence_takes_little_memory_however_it_is_cut(kind: str, tmp_path: Path) -> None:
    """A silence of ten minutes makes hundreds of thousands of rows, of which one window's must not wait for the
    other's."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for way in ("at once", "step by step", "restarted"):
        taken = found[way] = []
        checkpoint = tmp_path / kind if way == "restarted" else None
        app = ps.App(STREAM + TEXTS[kind], memory="800KB", checkpoint=checkpoint)
        app.subscribe("q1", lambda rows, taken=taken: taken.extend(zip(*rows.to_pydict().values(), strict=True)))
        app.push("s", [{"t": 0, "k": k, "x": 1.0} for k in range(GROUPS)])
        if way == "step by step":
            for second in range(1, 600):
                app.advance("s", second * SECOND)
        elif way == "restarted":
            app.checkpoint()
            app.close()
            app = ps.App(STREAM + TEXTS[kind], memory="800KB", checkpoint=checkpoint)
            app.subscribe("q1", lambda rows, taken=taken: taken.extend(zip(*rows.to_pydict().values(), strict=True)))
        app.push("s", {"t": 600, "k": 0, "x": 1.0})
        app.finish()
        app.close()
    assert len(found["at once"]) == ROWS[kind]
    assert found["at once"] == found["step by step"] == found["restarted"]


@pytest.mark.parametrize(
    ("text", "slides"),
    [
        (TEXTS["lengths"], {"s": 1}),
        (TEXTS["union"], {"s": 1}),
        (COUNTED.format(3), {}),
        ("SELECT x.k FROM s [RANGE 1 HOUR] AS x, s [RANGE 1 HOUR] AS y WHERE x.k = y.k", {}),
        (f"SELECT x.k FROM s [RANGE 1 HOUR] AS x, ({COUNTED.format(7)}) [RANGE 1 HOUR] AS y WHERE x.k = y.k", {"s": 7}),
    ],
)
def test_which_streams_pass_in_steps(text: str, slides: dict[str, int]) -> None:
    (query,) = parse(STREAM + text).queries
    assert meeting_slides(build(query.body)) == {stream: slide * SECOND for stream, slide in slides.items()}
