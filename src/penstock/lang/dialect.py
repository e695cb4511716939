"""The one module that uses sqlglot's tokenizer: query text to tokens of our own, and where a node stands in the text.

The grammar reads `Token`s and knows nothing of sqlglot but its expression nodes (`sqlglot.exp`). Whatever else of
sqlglot is needed, such as its parsers for other dialects, belongs into this module.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import ClassVar, NamedTuple

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from penstock.lang.places import QueryText, Span
from penstock.types import SqlType

TYPE_NAMES = {type_.value: type_ for type_ in SqlType if type_ not in (SqlType.NULL, SqlType.INTERVAL)} | {
    "BOOL": SqlType.BOOLEAN,
    "INTEGER": SqlType.INT,
    "LONG": SqlType.BIGINT,
    "REAL": SqlType.FLOAT,
    "DOUBLE PRECISION": SqlType.DOUBLE,
    "TEXT": SqlType.STRING,
    "VARCHAR": SqlType.STRING,
}

SUFFIXES = {"L": SqlType.BIGINT, "S": SqlType.SMALLINT, "Y": SqlType.TINYINT, "D": SqlType.DOUBLE, "F": SqlType.FLOAT}
"""Spark's letters after a number: 10L is a BIGINT."""

_SPELLINGS = {"==": "=", "!=": "<>", "!": "NOT", "~~": "LIKE", "PARTITIONED BY": "PARTITION BY"}
"""Tokens that mean the same as another one."""

_RESERVED = frozenset(
    """
    ALL ALTER AND AS BETWEEN CASE CREATE CROSS DISTINCT DROP ELSE EXCEPT FALSE FETCH FOR FROM GLOB GRANT HAVING ILIKE
    INNER INSERT INTERSECT INTO JOIN LATERAL LIKE MINUS NOT NOTNULL NULL ON OR OUTER QUALIFY REGEXP RETURNING REVOKE
    RLIKE ROLLBACK SELECT SERDEPROPERTIES TABLESAMPLE THEN TRUE UNCACHE UNION USING VALUES WHEN WHERE WITH XOR
    """.split()  # noqa: SIM905
)
"""Words that are names only in quotes."""

_ESCAPED = re.compile(r"''|\\(u[\da-fA-F]{4}|U00(?:0[\da-fA-F]|10)[\da-fA-F]{4}|[01][0-7]{2}|.)", re.DOTALL | re.ASCII)
_CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
SURROGATE = re.compile("[\ud800-\udfff]")

_UNCLOSED = re.compile(r"Missing (.+) from \d+:(\d+)")


class Kind(Enum):
    """NAME is a word without a meaning in SQL, KEYWORD one or several (GROUP BY) with one, though perhaps not here.
    OTHER is a literal that this language has not, such as N'text'. END stands behind the last token of a statement."""

    NAME = auto()
    KEYWORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    OTHER = auto()
    END = auto()


class Token(NamedTuple):
    """`text` is as written, without quotes. `word` is what the grammar compares: upper case and in one spelling. Names
    in quotes, literals and the end have no `word`."""

    kind: Kind
    text: str
    word: str
    start: int
    end: int
    commented: bool = False

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def is_name(self) -> bool:
        """Whether it can name something: words that SQL can do without are names too."""
        if self.kind is Kind.KEYWORD:
            return " " not in self.word and self.word not in _RESERVED
        return self.kind is Kind.NAME or self.kind is Kind.QUOTED


class Penstock(Spark):
    """Spark's tokens, but double quotes are identifiers, as in standard SQL, and nothing is taken as a raw command."""

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["\\", "'"]
        RAW_STRINGS: ClassVar = []
        HEX_STRINGS: ClassVar = []
        COMMANDS: ClassVar = set()
        NUMERIC_LITERALS: ClassVar = {suffix: type_.value for suffix, type_ in SUFFIXES.items()}


_KINDS = {
    TokenType.VAR: Kind.NAME,
    TokenType.IDENTIFIER: Kind.QUOTED,
    TokenType.STRING: Kind.STRING,
    TokenType.NUMBER: Kind.NUMBER,
    **{type_: Kind.OTHER for type_ in TokenType if type_.name.endswith("_STRING")},
}
"""All others are words and symbols that mean something in SQL."""


def tokenize(source: QueryText) -> list[Token]:
    try:
        return [_token(token, source.text) for token in Penstock().tokenize(source.text)]
    except SqlglotError as error:
        unclosed = _UNCLOSED.match(str(error.__cause__))
        if unclosed is None:
            raise source.refusal("this text cannot be read as SQL", (0, 1)) from None
        delimiter, start = unclosed.group(1), min(int(unclosed.group(2)), len(source.text) - 1)
        raise source.refusal(f"a closing {delimiter} is missing", (start, len(source.text))) from None


def _token(token: sqlglot.Token, source: str) -> Token:
    text, kind, word, end = token.text, _KINDS.get(token.token_type), "", token.end + 1
    if kind is None or kind is Kind.NAME:
        word = text.upper()
        word = _SPELLINGS.get(word, word)
    elif kind is Kind.STRING:
        text = _unescaped(source[token.start + 1 : end - 1])
    elif kind is Kind.QUOTED:
        text = source[token.start + 1 : end - 1].replace(2 * source[token.start], source[token.start])
    if kind is None:
        kind = Kind.KEYWORD if text[:1].isalpha() else Kind.SYMBOL
    return Token(kind, text, word, token.start, end, bool(token.comments))


def _unescaped(written: str) -> str:
    r"""What a string says, as in Spark. Versions of sqlglot differ in that.

    >>> _unescaped(r"it''s \u0041\n")
    "it's A\n"
    """
    text = _ESCAPED.sub(_character, written) if "\\" in written or "'" in written else written
    if SURROGATE.search(text) is None:
        return text
    return SURROGATE.sub("?", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code is None or len(code) == 1:
        return "'" if code is None else _CONTROLS.get(code, code)
    return chr(int(code, 8) if code.isdigit() else int(code[1:], 16))


def column_at(span: Span, column: str, table: str) -> exp.Column:
    """A column, of a table unless that is empty, for something else that stands in the text."""
    names = [exp.Identifier(this=name, quoted=True) for name in (column, table) if name]
    node = exp.Column(this=names[0], table=names[1] if table else None)
    for part in (node, *names):
        part.meta["start"], part.meta["end"] = span[0], span[1] - 1
    return node


def span_of(node: exp.Expr) -> Span | None:
    """The stretch of text a node was read from: its own offsets joined with those of everything below it."""
    starts: list[int] = []
    ends: list[int] = []
    for part in node.walk():
        start = part.meta.get("start")
        if start is not None:
            starts.append(start)
            ends.append(part.meta["end"] + 1)
    return (min(starts), max(ends)) if starts else None
