"""Pictures of applications: well-formed, with a box for everything there is and a line for everything that flows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.lang import parse
from penstock.pictures.application import picture
from penstock.pictures.svg import Box, Sheet

EXAMPLES = Path(__file__).parents[2] / "examples"
SVG = "{http://www.w3.org/2000/svg}"

APP = """
    CREATE STREAM trades (at TIMESTAMP, symbol STRING, price DOUBLE, EVENT TIME at) FROM 'trades&co.parquet';
    CREATE STREAM quotes (at TIMESTAMP, bid DOUBLE, EVENT TIME at);
    CREATE SINK highs TO 'out/<highs>.csv';
    CREATE QUERY vwap AS SELECT symbol, SUM(price) AS p FROM trades [RANGE 1 HOUR] GROUP BY symbol;
    CREATE QUERY mean AS SELECT AVG(price) AS mean FROM trades [RANGE 1 DAY SLIDE 10 SECONDS];
    CREATE QUERY most AS SELECT MAX(price) AS most FROM trades [RANGE 1 DAY SLIDE 15 SECONDS];
    CREATE QUERY rare AS SELECT MAX(price) AS most FROM trades [RANGE 1 DAY SLIDE 1 MINUTE];
    CREATE QUERY same AS SELECT MIN(price) AS least FROM trades [RANGE 1 DAY SLIDE 1 MINUTE];
    CREATE QUERY last AS SELECT AVG(price) AS mean FROM trades [ROWS 1000 SLIDE 100 ROWS];
    INSERT INTO bars SELECT symbol, MAX(price) AS high FROM trades [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY symbol;
    INSERT INTO highs SELECT MAX(high) AS highest FROM bars [RANGE 1 HOUR SLIDE 7 MINUTES OFFSET 1 MINUTE];
    CREATE QUERY local AS SELECT COUNT(*) AS n FROM quotes [RANGE 1 MINUTE SLIDE 5 SECONDS ON WALL CLOCK];
    CREATE QUERY visit AS SELECT COUNT(*) AS n FROM quotes [SESSION 1 MINUTE];
    CREATE QUERY plain AS SELECT bid + 1 AS bid FROM quotes WHERE bid > 1 AND bid < 5;
"""


class Drawn:
    def __init__(self, text: str) -> None:
        self.svg = picture(parse(text), "a title")
        self.root = ElementTree.fromstring(self.svg)
        boxes = self.root.findall(f"{SVG}g")
        self.boxes = {box.attrib["data-name"]: box.attrib["data-kind"] for box in boxes}
        self.lines_in = {b.attrib["data-name"]: [t.text for t in b.findall(f"{SVG}text")] for b in boxes}
        self.tips = {b.attrib["data-name"]: b.findtext(f"{SVG}title") for b in boxes}
        paths = self.root.findall(f"{SVG}path")
        self.lines = {(p.attrib["data-from"], p.attrib["data-to"]): p.attrib["class"] for p in paths}


def test_streams_windows_queries_and_sinks_are_boxes_and_sharing_is_lines_from_one_box() -> None:
    drawn = Drawn(APP)
    plan = {name for name, kind in drawn.boxes.items() if kind in ("stream", "window", "query", "sink")}
    queries = ["vwap", "mean", "most", "rare", "same", "last", "bars", "highs", "local", "visit", "plain"]
    assert {name for name in plan if name.startswith("query ")} == {f"query {name}" for name in queries}
    assert {name for name in plan if drawn.boxes[name] == "stream"} == {"stream trades", "stream quotes", "stream bars"}
    sharing = {end for start, end in drawn.lines if start == "window of trades"}
    assert sharing == {f"query {name}" for name in ("vwap", "mean", "most", "rare", "same", "last")}
    assert drawn.lines_in["window of trades"][1] == "shared by 6 queries"
    for line in [
        ("stream trades", "window of trades"),
        ("stream trades", "window 1 of bars"),
        ("window 1 of bars", "query bars"),
        ("query bars", "stream bars"),
        ("stream bars", "window of bars"),
        ("window of bars", "query highs"),
        ("query highs", "sink highs"),
        ("stream quotes", "query plain"),
    ]:
        assert line in drawn.lines, line
    assert drawn.lines_in["window 1 of bars"][0] == "window, no rows stored"
    assert drawn.lines_in["stream trades"][1] == "trades&co.parquet"


def test_each_stream_and_kind_of_slide_has_its_graph() -> None:
    drawn = Drawn(APP)
    second = 1_000_000
    graph = {name: kind for name, kind in drawn.boxes.items() if kind in ("slide", "dummy")}
    assert graph == {
        "trades count 1": "slide",
        "trades count 100": "slide",
        f"trades event time {5 * second}": "dummy",
        f"trades event time {10 * second}": "slide",
        f"trades event time {15 * second}": "slide",
        f"trades event time {60 * second}": "slide",
        f"bars event time, offset 1 minute {420 * second}": "slide",
        f"quotes wall clock {5 * second}": "slide",
    }
    of_time = {line: kind for line, kind in drawn.lines.items() if "trades event time" in line[0]}
    name = "trades event time {}000000".format
    assert of_time == {
        (name(5), name(10)): "line",
        (name(5), name(15)): "line",
        (name(15), name(60)): "line",
        (name(10), name(60)): "line weak",
    }
    assert drawn.tips[name(60)] == "rare, same, bars"
    assert "tests per tick: 3.33; without the graph: 3" in drawn.svg


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.sql")), ids=lambda path: path.stem)
def test_examples_have_pictures_whose_boxes_do_not_overlap(example: Path) -> None:
    root = ElementTree.fromstring(Drawn(example.read_text()).svg)
    rects = [box.find(f"{SVG}rect") for box in root.findall(f"{SVG}g")]
    corners = []
    for rect in rects:
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        corners.append((x, y, x + width, y + height))
    for number, (left, top, right, bottom) in enumerate(corners):
        for x1, y1, x2, y2 in corners[:number]:
            assert right <= x1 or x2 <= left or bottom <= y1 or y2 <= top
    x0, y0, width, height = map(float, root.attrib["viewBox"].split())
    assert max(c[2] for c in corners) <= x0 + width
    assert max(c[3] for c in corners) <= y0 + height


def test_windows_of_several_lengths_in_one_query_are_one_stored_window() -> None:
    drawn = Drawn(
        "CREATE STREAM s (t TIMESTAMP, x DOUBLE, EVENT TIME t);"
        "CREATE QUERY both WITH ('strategy' = 'window') AS SELECT AVG(x) OVER [RANGE 1 HOUR] AS h, AVG(x) AS d "
        "FROM s [RANGE 1 DAY SLIDE 10 SECONDS]"
    )
    assert set(drawn.lines) == {
        ("stream s", "window of s"),
        ("window of s", "query both"),
    }
    assert drawn.lines_in["query both"][1].startswith("2 aggregates")
    assert drawn.tips["s event time 10000000"] == "both"


def test_panes_and_joins_that_queries_share_are_one_box() -> None:
    drawn = Drawn(
        "CREATE STREAM s (t TIMESTAMP, k INT, x DOUBLE, EVENT TIME t);"
        "CREATE QUERY a WITH ('strategy' = 'panes') AS SELECT AVG(x) AS m FROM s [RANGE 1 DAY SLIDE 10 SECONDS];"
        "CREATE QUERY b WITH ('strategy' = 'panes') AS SELECT AVG(x) AS m FROM s [RANGE 1 HOUR SLIDE 10 SECONDS];"
        "CREATE QUERY c AS SELECT x.k FROM s [RANGE 1 HOUR] AS x JOIN s [RANGE 1 HOUR] AS y ON x.k = y.k;"
        "CREATE QUERY d AS SELECT x.k FROM s [RANGE 1 MINUTE] AS x JOIN s [RANGE 1 HOUR] AS y ON x.k = y.k"
    )
    assert set(drawn.lines) == {
        ("stream s", "panes 0 of s"),
        ("panes 0 of s", "query a"),
        ("panes 0 of s", "query b"),
        ("stream s", "join 2"),
        ("join 2", "query c"),
        ("join 2", "query d"),
    }
    assert drawn.lines_in["panes 0 of s"][:2] == ["panes of 10 SECONDS", "shared by 2 queries"]


def test_windows_that_are_written_alike_are_boxes_of_their_own() -> None:
    drawn = Drawn(
        "CREATE STREAM s (t TIMESTAMP, x DOUBLE, EVENT TIME t);"
        "CREATE QUERY q AS SELECT AVG(m) AS mean "
        "FROM (SELECT MAX(x) AS m FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]) [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    )
    assert set(drawn.lines) == {
        ("stream s", "window 1 of q"),
        ("window 1 of q", "window 2 of q"),
        ("window 2 of q", "query q"),
    }


def test_no_name_is_taken_for_another_box() -> None:
    drawn = Drawn(
        "CREATE STREAM s (t TIMESTAMP, x DOUBLE, EVENT TIME t);"
        "INSERT INTO q SELECT MAX(x) AS m FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE];"
        "INSERT INTO `1 of q` SELECT m FROM q;"
        "INSERT INTO `q [RANGE 1 MINUTE SLIDE 1 MINUTE]` SELECT m FROM q;"
        "SELECT AVG(m) AS a FROM `1 of q` [ROWS 2];"
        "SELECT AVG(m) AS a FROM `q [RANGE 1 MINUTE SLIDE 1 MINUTE]` [ROWS 2]"
    )
    windows = {name for name, kind in drawn.boxes.items() if kind == "window"}
    assert windows == {"window 1 of q", "window of 1 of q", "window of q [RANGE 1 MINUTE SLIDE 1 MINUTE]"}


def test_text_of_queries_cannot_break_the_picture() -> None:
    drawn = Drawn(
        "CREATE STREAM `a<b>&\"'` (t TIMESTAMP, `x]]>` DOUBLE, EVENT TIME t);"
        "SELECT SUM(`x]]>`) AS `</svg>` FROM `a<b>&\"'` [ROWS 10] WHERE `x]]>` < 1 AND `x]]>` > 0"
    )
    assert "stream a<b>&\"'" in drawn.boxes
    assert not re.search(r"<svg>.*</svg>.*</svg>", drawn.svg, re.DOTALL)


def test_characters_that_xml_does_not_have_are_replaced() -> None:
    sheet = Sheet("a\x00title")
    box = sheet.place(Box("stream", "s\x01", ("line\x02",), "tip\ud800"), 0, 0)
    sheet.join_across(box, box)
    sheet.write("\x03", 0, 0)
    assert "line\ufffd" in "".join(ElementTree.fromstring(sheet.render()).itertext())


def test_an_application_without_queries_has_a_picture() -> None:
    assert Drawn("CREATE STREAM s (t TIMESTAMP, EVENT TIME t)").boxes == {"stream s": "stream"}
    assert Drawn("").boxes == {}


CORRELATED = """
    CREATE STREAM trades (at TIMESTAMP, symbol STRING, price DOUBLE, EVENT TIME at);
    CREATE STREAM quotes (at TIMESTAMP, symbol STRING, bid DOUBLE, EVENT TIME at);
    CREATE TABLE limits (symbol STRING PRIMARY KEY, most DOUBLE);
    CREATE FUNCTION notify AS HTTP POST 'https://example.org/alarms';
    ON quotes UPSERT INTO limits VALUES (quotes.symbol, quotes.bid);
    CREATE QUERY joined AS SELECT trades.symbol, bid FROM trades [RANGE 1 HOUR], quotes [ROWS 5]
        WHERE trades.symbol = quotes.symbol;
    CREATE QUERY matched AS
        SELECT a.symbol FROM PATTERN SEQ(trades a, quotes b) WHERE a.symbol = b.symbol WITHIN 1 MINUTE;
    CREATE QUERY looked AS SELECT trades.symbol, most FROM trades, limits WHERE trades.symbol = limits.symbol;
    CREATE RULE high
        WHEN SELECT symbol, AVG(price) AS mean FROM trades [RANGE 1 HOUR] GROUP BY symbol HAVING AVG(price) > 5
        THEN EMIT INTO alarms SELECT symbol, CALL notify(symbol, mean);
"""


def test_joins_patterns_tables_and_rules() -> None:
    drawn = Drawn(CORRELATED)
    assert drawn.lines_in["query joined"] == ["joined", "joins 2 windows"]
    assert drawn.lines_in["window 1 of joined"][2:] == ["trades [RANGE 1 HOUR]", "quotes [ROWS 5]"]
    assert drawn.lines_in["query matched"] == ["matched", "matches of a pattern"]
    assert drawn.lines_in["window 1 of matched"][2] == "within 1 MINUTE"
    assert drawn.lines_in["query looked"] == ["looked", "looks up 1 table"]
    assert drawn.lines_in["query high"][:2] == ["high", "rule high"]
    assert drawn.lines_in["function notify"] == ["notify(...)", "https://example.org/alarms"]
    for line in [
        ("stream trades", "window 1 of joined"),
        ("stream quotes", "window 1 of matched"),
        ("stream quotes", "table limits"),
        ("table limits", "query looked"),
        ("window of trades", "query high"),
        ("query high", "stream high"),
        ("query high", "function notify"),
        ("stream high", "query alarms"),
    ]:
        assert line in drawn.lines
    assert ("stream quotes", "query looked") not in drawn.lines
