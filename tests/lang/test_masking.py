"""An error shows lines of the query text, and none of the secrets in them, wherever the error is."""

from __future__ import annotations

import pytest

from penstock.errors import QueryError
from penstock.lang import parse
from penstock.masking import masked

SECRET = "hunter2"

TABLE = "CREATE TABLE z (k INT, PRIMARY KEY (k)) FROM '{}' WIHT ('table' = 'z')"
FUNCTION = "CREATE FUNCTION f AS HTTP POST '{}' WITH ({}) AND"


@pytest.mark.parametrize(
    "text",
    [
        TABLE.format(f"postgresql://ann:{SECRET}@db/x"),
        TABLE.format(f"postgresql://ann:a@{SECRET}@db/x"),
        TABLE.format(f"postgresql://ann:a'{SECRET}@db/x".replace("'", "''")),
        TABLE.format(f"postgresql://ann@db/x?password={SECRET}"),
        TABLE.format(f"postgresql://ann@db/x?sslmode=require&p%61ssword={SECRET}"),
        TABLE.format(f"postgresql://ann@db/x?password=a''{SECRET}"),
        f'CREATE TABLE z (k INT, PRIMARY KEY (k)) FROM "postgresql://ann:{SECRET}@db/x" WIHT',
        f"CREATE TABLE z (k INT, PRIMARY KEY (k)) FROM 'postgresql://ann:{SECRET}@db/x",
        TABLE.format(f"postgresql://ann:a?{SECRET}@db/x"),
        TABLE.format(f"postgresql://db/x?user=a@b&password={SECRET}"),
        FUNCTION.format(f"https://a/?token={SECRET}", "'retries' = '1'"),
        FUNCTION.format("https://a/", f"'header.Authorization' = 'Bearer {SECRET}'"),
        FUNCTION.format("https://a/", f"'header.X' = 'it''s {SECRET}'"),
        FUNCTION.format("https://a/", f"'header.X' /* = 'a' */ = -- a\n   'Bearer {SECRET}'"),
        FUNCTION.format("https://a/", f"'header.X' = 'a\n{SECRET}'"),
        FUNCTION.format("https://a/", f"'header.X' = '{SECRET}\n'").removesuffix(" AND"),
        f"CREATE FUNCTION f AS HTTP POST 'https://a/' WITH ('header.X' = 'Bearer {SECRET}",
        f"CREATE FUNCTION f AS HTTP POST 'file://a/?password={SECRET}'",
        f"CREATE FUNCTION f AS HTTP POST 'https://ann:{SECRET}@a/'",
        f"CREATE SINK o TO 'kafka:t' WITH ('kafka.sasl.jaas.config' = 'password=\"{SECRET}\"') AND",
        FUNCTION.format("https://a/", "'header.X' -> 'a'").replace("POST 'h", f"PSOT 'http://ann:{SECRET}@h"),
        f"CREATE SINK o TO 'kafka:t' WITH ('ssl.key.password' = '{SECRET}') AND",
    ],
)
def test_a_secret_is_not_in_an_error(text: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert SECRET not in str(refused.value)
    assert "\n  | " in str(refused.value)


def test_places_stay_where_they_are() -> None:
    with pytest.raises(QueryError) as refused:
        parse(TABLE.format(f"postgresql://ann:{SECRET}@db/x?password={SECRET}"))
    _, _, shown, caret, *_ = str(refused.value).splitlines()
    assert caret.index("^") == shown.index("WIHT")
    assert "'postgresql://***********@db/x?****************' WIHT" in shown


@pytest.mark.parametrize("part", ["://a:", "'token'/*", "'token'--", "'token", "'header.a'='b'", "://a?b@", "\\'"])
def test_hostile_texts_take_no_longer(part: str) -> None:
    """A time that grew with the square of the length would be hours."""
    assert len(masked(part * (500_000 // len(part)))) > 490_000
