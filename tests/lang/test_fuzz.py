"""Hostile text: whatever is given to `parse`, a typed program or a QueryError comes out, and soon."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.errors import QueryError
from penstock.lang import parse
from penstock.lang.fingerprint import fingerprint
from penstock.lang.query import Program

VALID = (
    "CREATE STREAM s (t TIMESTAMP NOT NULL, k STRING, x DOUBLE, n INT, ok BOOLEAN, d DATE, id BIGINT,"
    " EVENT TIME t LATENESS 10 SECONDS SEQUENCE id IDLE AFTER 1 MINUTE) FROM 'x/*.csv' WITH ('a'='b') LATE INTO late;\n"
    "CREATE SINK o TO 'o.jsonl';\n",
    "INSERT INTO o SELECT ISTREAM k, SUM(x * n) / SUM(n) AS v, COUNT(*) FILTER (WHERE ok)"
    " FROM s [RANGE 1 HOUR 30 MINUTES SLIDE 10 SECONDS OFFSET 5 SECONDS WHEN FULL] AS z"
    " WHERE z.x BETWEEN 1 AND 2.5e3 AND k NOT LIKE 'a%' OR d IS NULL"
    " GROUP BY k HAVING COUNT(DISTINCT n) > 3 ORDER BY v DESC NULLS LAST LIMIT 10 DRAIN;",
    "SELECT SUM(a)/SUM(c) FROM (SELECT SUM(x) AS a, COUNT(x) AS c FROM s [RANGE 1 SECOND SLIDE 1 SECOND])"
    " [RANGE 1 HOUR];",
    "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)"
    " FROM (SELECT x FROM s UNION ALL SELECT 1.5 FROM s) [ROWS 9 SLIDE 3];",
    "EXPLAIN SELECT CASE WHEN n IN (1, -2) THEN upper(k) || 'it''s' ELSE `k` END AS c, CAST(x AS INT) & 7,"
    " t + INTERVAL '1' HOUR FROM s -- comment\n;",
    "CREATE QUERY w AS SELECT DISTINCT k FROM s [PARTITION BY k ROWS 3 SLIDE 250 MILLISECONDS ON WALL CLOCK];",
    "INSERT INTO m SELECT k, MAX(x) FROM s [SINCE TIMESTAMP '2024-01-01' SLIDE 1 DAY] GROUP BY 1;"
    " SELECT window_end AS e, k FROM m /* x */ WHERE k <=> 'a' ; SELECT COUNT(*) FROM m [SESSION 5 MINUTES];",
    "CREATE FUNCTION f AS HTTP POST 'https://a.b/c' WITH ('timeout' = '5 SECONDS', 'header.X' = 'env:Y');"
    " CREATE TABLE tt (k STRING PRIMARY KEY, n INT);"
    " CREATE RULE r WHEN SELECT k, SUM(x) AS v FROM s [RANGE 1 HOUR] GROUP BY k HAVING SUM(x) > 1 THEN"
    " EMIT INTO aa SELECT k, v * 2 AS w, CALL f(k, v AS z), UPDATE tt SET n = tt.n + 1 WHERE tt.k = r.k;"
    " WHEN SELECT k FROM s WHERE ok BY k, n THEN EMIT INTO bb;"
    " WHEN PATTERN SEQ(s a, !s b, s+ c) WHERE a.k = b.k WITHIN 1 MINUTE EVERY THEN CALL f(*)",
    ";SELECT a.k, COUNT(c.*), MAX(c.x - a.x) AS m FROM PATTERN SEQ(ONE s a, OR(s b, AND(s d, s e)), s+ c, !s f)"
    " WHERE a.k = b.k AND a.n < c.n AND COUNT(*) > 1 WITHIN 1 MINUTE;"
    " SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS p, LAST(B.x) AS q AFTER MATCH SKIP TO NEXT ROW"
    " PATTERN (A B{2}) WITHIN 1 MINUTE DEFINE B AS B.x < PREV(B.x)) AS m",
)

WORDS = """
SELECT FROM WHERE GROUP_BY HAVING ORDER_BY LIMIT DRAIN CREATE STREAM SINK QUERY INSERT INTO EXPLAIN UNION ALL DISTINCT
RANGE ROWS SLIDE NOW SESSION SINCE OFFSET ON WALL CLOCK WHEN FULL PARTITION_BY EVENT TIME LATENESS SEQUENCE IDLE AFTER
LATE UNIT CASE THEN ELSE END CAST AS INT DOUBLE STRING TIMESTAMP DATE INTERVAL AND OR NOT IN LIKE BETWEEN IS NULL TRUE
RULE EVERY BY EMIT CALL FUNCTION HTTP POST UPDATE SET DELETE UPSERT TABLE PATTERN SEQ ONE
MATCH_RECOGNIZE MEASURES DEFINE PREV
COUNT SUM MEDIAN PERCENTILE_CONT WITHIN GROUP FILTER OVER ISTREAM WITH JOIN LATERAL VALUES s t k x n ok window_end
SECONDS HOUR 1 0 -1 2.5 1e400 99999999999999999999 10L '' 'a' '2024-01-01' `k` "x" ( ) [ ] { } , ; . * + - / % = <> <
> <=> || | & ^ << :: : ? @ $ # -> /*+ */ -- \\ ! ~ é \x00 ' ` "
""".split()  # noqa: SIM905

FAST = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def outcome(text: str) -> Program | QueryError:
    started = time.perf_counter()
    try:
        result: Program | QueryError = parse(text)
        fingerprint(result.queries)
    except QueryError as error:
        result = error
    assert time.perf_counter() - started < 10
    return result


@FAST
@given(st.text(max_size=300))
@example("SELECT \ud800")
def test_any_text(text: str) -> None:
    outcome(text)


@FAST
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    outcome(data.decode("latin-1"))
    outcome("SELECT " + data.decode("utf-8", "surrogateescape"))


@FAST
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_words_in_any_order(words: list[str]) -> None:
    text = " ".join(words).replace("_BY", " BY")
    outcome(text)
    outcome(VALID[0] + "SELECT " + text + " FROM s")
    outcome(VALID[0] + "SELECT x FROM s [" + text + "]")


@FAST
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_damaged_queries(source: random.Random, damages: int) -> None:
    text = VALID[0] + source.choice(VALID)
    for _ in range(damages):
        start = source.randrange(len(text))
        end = min(len(text), start + source.choice((0, 1, 1, 2, 8, 30)))
        other = source.choice(VALID)
        at = source.randrange(len(other))
        patch = source.choice(
            ("", "", source.choice(WORDS), other[at : at + source.randrange(30)], text[start:end] * 2)
        )
        text = text[:start] + patch + text[end:]
    outcome(text)


def test_the_undamaged_queries_are_valid() -> None:
    program = outcome("".join(VALID))
    assert isinstance(program, Program)
    assert len(program.queries) == 14


SELECT = VALID[0] + "SELECT "


@pytest.mark.parametrize(
    "text",
    [
        SELECT + "(" * 5_000 + "x" + ")" * 5_000 + " FROM s",
        SELECT + "(" * 100_000,
        SELECT + "NOT " * 8_000 + "ok FROM s",
        SELECT + "- " * 8_000 + "x FROM s",
        SELECT + "CASE WHEN " * 5_000 + "ok FROM s",
        SELECT + "upper(" * 5_000 + "k FROM s",
        SELECT + "x" + " + x" * 8_000 + " FROM s",
        SELECT + "k" + " = k" * 8_000 + " FROM s",
        SELECT + "x" + "::INT" * 8_000 + " FROM s",
        SELECT + "x" + ".x" * 8_000 + " FROM s",
        SELECT + "ok" + " IS NULL" * 8_000 + " FROM s",
        VALID[0] + "SELECT x FROM (" * 5_000,
        VALID[0] + "SELECT x FROM s UNION ALL " * 2_000 + "SELECT n FROM s",
        SELECT + "'" + "a" * 400_000,
        SELECT + "a" * 400_000 + " FROM s",
        SELECT + "9" * 400_000 + " FROM s",
        SELECT + "INTERVAL '" + "1 hour " * 50_000 + "' FROM s",
        SELECT + "x FROM s [RANGE " + "9" * 400_000 + " HOURS]",
        "/*" * 200_000,
        "-- x\n" * 100_000 + ")",
        ";" * 100_000,
        "[" * 100_000,
        "x" * 500_001,
    ],
    ids=lambda text: text[len(SELECT) :][:12].strip() or text[:8],
)
def test_long_and_deep_text_is_refused_soon(text: str) -> None:
    result = outcome(text)
    assert isinstance(result, QueryError) or not result.queries


@pytest.mark.parametrize(
    "text",
    [
        SELECT + "x FROM s WHERE ok" + " AND n > 1" * 3_000 + "",
        SELECT + "x FROM s WHERE ok" + " OR n > 1" * 3_000 + "",
        SELECT + "x FROM s WHERE n IN (0" + ", 1" * 8_000 + ")",
        SELECT + "k" + " || k" * 5_000 + " AS k FROM s",
        SELECT + "(" * 25 + "x" + ")" * 25 + " AS x FROM s",
        SELECT + "x" + " + x" * 90 + " AS x FROM s",
        SELECT + "CASE n" + " WHEN n THEN n" * 2_000 + " END AS x FROM s",
        VALID[0] + "SELECT x FROM s UNION ALL " * 1_000 + "SELECT x FROM s",
    ],
    ids=["and", "or", "in", "concat", "nested", "sum", "case", "union"],
)
def test_long_chains_that_are_accepted(text: str) -> None:
    assert isinstance(outcome(text), Program)
