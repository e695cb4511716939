"""Tokens: what strings and quoted names say, which words are names, and where a token stands."""

from __future__ import annotations

import pytest

from penstock.errors import QueryError
from penstock.lang.dialect import Kind, Token, tokenize
from penstock.lang.places import QueryText


def tokens(text: str) -> list[Token]:
    return tokenize(QueryText(text))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (r"'plain'", "plain"),
        (r"'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'\n\t\r\b\0\Z'", "\n\t\r\b\0\x1a"),
        (r"'a\%b\_'", r"a\%b\_"),
        (r"'\z\\'", "z\\"),
        (r"'\u0041\101\U0001F600'", "AA\U0001f600"),
        (r"'\uD83D\uDE00'", "\U0001f600"),
        (r"'\uD83D'", "?"),
        (r"'\200\U00110000'", "200U00110000"),
        (r"'\u00e9é'", "éé"),
    ],
)
def test_a_string_says_what_it_says_in_spark(written: str, said: str) -> None:
    assert [(token.kind, token.text, token.word) for token in tokens(written)] == [(Kind.STRING, said, "")]


def test_names_in_quotes_are_as_written() -> None:
    assert [(t.kind, t.text, t.word) for t in tokens(r'"a""b" `a``b` "\n"')] == [
        (Kind.QUOTED, 'a"b', ""),
        (Kind.QUOTED, "a`b", ""),
        (Kind.QUOTED, r"\n", ""),
    ]


def test_words_have_one_spelling() -> None:
    found = tokens("select Group   by x == 1 != 2 ! ok")
    assert [t.word for t in found] == ["SELECT", "GROUP BY", "X", "=", "", "<>", "", "NOT", "OK"]


@pytest.mark.parametrize("word", ["x", "first", "left", "end", "in", "rows", "`select`", '"from"'])
def test_names(word: str) -> None:
    assert [t.is_name for t in tokens(word)] == [True]


@pytest.mark.parametrize("word", ["select", "FROM", "null", "case", "all", "group by", "'x'", "1", "+", "n'x'"])
def test_no_names(word: str) -> None:
    assert [t.is_name for t in tokens(word)] == [False]


def test_the_place_of_a_token_is_that_of_its_text() -> None:
    text = "SELECT 'it''s',\n  \"a b\" -- c\n FROM s"
    assert [text[slice(*t.span)] for t in tokens(text)] == ["SELECT", "'it''s'", ",", '"a b"', "FROM", "s"]
    assert [t.commented for t in tokens(text)] == [False, False, False, True, False, False]


def test_a_quote_that_is_not_closed() -> None:
    with pytest.raises(QueryError, match="a closing ' is missing"):
        tokens("SELECT 'a")
