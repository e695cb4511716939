"""`penstock graph`: the picture goes to a file or to standard output, and errors are told."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

APP = """
    CREATE STREAM s (t TIMESTAMP, n INT, EVENT TIME t);
    SELECT SUM(n) AS total FROM s [RANGE 1 HOUR SLIDE 10 SECONDS];
"""


def test_to_standard_output_or_to_a_file(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "app.sql").write_text(APP)
    code, out, err = penstock("graph", tmp_path / "app.sql")
    assert (code, err) == (0, "")
    root = ElementTree.fromstring(out)
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "app.sql"
    assert penstock("graph", tmp_path / "app.sql", "-o", tmp_path / "out" / "app.svg") == (0, "", "")
    assert (tmp_path / "out" / "app.svg").read_text() == out


def test_errors_are_told(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bad.sql").write_text("SELECT SUM(n) FROM nowhere [RANGE 1 HOUR]")
    (tmp_path / "app.sql").write_text(APP)
    code, out, err = penstock("graph", tmp_path / "bad.sql")
    assert (code, out) == (2, "")
    assert "nowhere" in err
    code, _, err = penstock("graph", tmp_path / "app.sql", "-o", tmp_path / "app.sql" / "app.svg")
    assert code == 2
    assert "cannot be written" in err
