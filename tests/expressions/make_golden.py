"""Makes the golden tables from a real Spark in ANSI mode: `python tests/expressions/make_golden.py`.

`golden/values.jsonl` has one line per function and argument types, with rows of arguments followed by Spark's result:
a value or `{"error": class}`. `golden/types.jsonl` has one line per function and argument types: the result type, or
null where Spark refuses the call. Values are written as `encode` says; `cast` is a function here, named `cast:TARGET`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import NoneType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "golden"

LEAP_DAY = 19_782  # 2024-02-29
TYPES = ("NULL", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP")
INTEGERS, FLOATS = ("TINYINT", "SMALLINT", "INT", "BIGINT"), ("FLOAT", "DOUBLE")
LIMITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}

FEW: dict[str, list[Any]] = {
    "NULL": [None],
    "BOOLEAN": [None, True, False],
    **{t: [None, 0, 1, -1, 7, -3, 2**bits - 1, -(2**bits)] for t, bits in LIMITS.items()},
    "FLOAT": [None, 0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 3.4028234663852886e38],
    "DOUBLE": [None, 0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1.7976931348623157e308],
    "STRING": [None, "", "abc", "abd", "ab", "Z", "é", "日本"],
    "DATE": [None, 0, -1, LEAP_DAY, -719_162, 2_932_896],
    "TIMESTAMP": [None, 0, -1, LEAP_DAY * 86_400_000_000 + 1, -62_135_596_800_000_000, 253_402_300_799_999_999],
}
MANY: dict[str, list[Any]] = {
    **FEW,
    "FLOAT": [
        *FEW["FLOAT"],
        0.5,
        2.5,
        -0.5,
        1.401298464324817e-45,
        16777216.0,
        2147483648.0,
        0.10000000149011612,
        1e10,
    ],
    "DOUBLE": [
        *FEW["DOUBLE"],
        *(0.5, 2.5, -0.5, 0.1, 1.0, -1.0, 2.675, 1.005, 123456789.125, 4.9e-324, 1e-3, 9.99e-4, 1e7, 9999999.5, 1e15),
        *(127.9, -128.9, 32767.5, 2147483647.5, -2147483648.5, 9.223372036854775e18, 9.223372036854776e18, 1e19, 1e-10),
    ],
    "STRING": [
        *FEW["STRING"],
        *("ABC def", "  pad ", "\tx\n", "Straße", "ÀÉΣσς", "日本語テスト", "😀x", "a%b_c\\d", "aXbXc", "ŉǰ", "İı"),
    ],
    "DATE": [*FEW["DATE"], -25_509, 11_322, 18_630, 18_628, 18_264, 365, 59, 60, 20_000],
    "TIMESTAMP": [
        *FEW["TIMESTAMP"],
        *(-1_000_000, -999_999, 1_500_000, 1_709_251_199_123_456, 1_609_459_200_000_000, -2_203_977_600_000_001),
        *(86_399_999_999, 1_700_000_000_000_000, 1_700_000_000_120_000),
    ],
}
INTEGER_TEXTS = [
    "12",
    " -7 ",
    "+5",
    "1.5",
    "1e3",
    "",
    "abc",
    "127",
    "128",
    "-32769",
    "2147483648",
    "0x1F",
    "1 2",
    "٣",
    "-",
]
FLOAT_TEXTS = (
    "NaN",
    "nan",
    "inf",
    "-Infinity",
    "+INF",
    "1d",
    "1.5f",
    ".5",
    "5.",
    "1e400",
    "-1e-400",
    "1e",
    "1_0",
    "-nan",
)
PARSED: dict[str, list[Any]] = {
    **{t: [None, *INTEGER_TEXTS, "9223372036854775807", "9223372036854775808", "00012"] for t in INTEGERS},
    **{t: [*INTEGER_TEXTS, *FLOAT_TEXTS] for t in FLOATS},
    "BOOLEAN": [None, "t", "TRUE", " yes ", "y", "1", "f", "False", "n", "no", "0", "", "on", "2", "tru"],
    "DATE": [
        *(
            None,
            "2024-02-29",
            "2023-02-29",
            "2024",
            "2024-3",
            "2024-3-1",
            " 2024-03-01 ",
            "2024-03-01T12",
            "2024-03-01 x",
        ),
        *("24-03-01", "2024-13-01", "2024/03/01", "", "abc", "-0001-01-01", "+12345-01-01", "1969-12-31", "20240301"),
    ],
    "TIMESTAMP": [
        *(None, "2024-02-29", "2024", "2024-2", "2024-02-29 12:30", "2024-02-29T12:30:15", "2024-02-29 1:2:3.5"),
        *(
            "2024-02-29 12:30:15.1234567",
            "2024-02-29 12:30:15+01:00",
            "2024-02-29 12:30:15Z",
            "2024-02-29 12:30:15 UTC",
        ),
        *("2023-02-29", "2024-02-29 24:00:00", "2024-02-29 12:60:00", "", "abc", "1969-12-31 23:59:59.999999"),
        *(
            "2024-02-29 12:30:15-0530",
            "2024-02-29 12:30:15+19:00",
            " 2024-02-29 12:30:15 ",
            "2024-02-29 12",
            "0001-01-01",
        ),
        *("2024-02-29 12:30:15.", "2024-02-29T", "2024-02-29 12:30:15 +1:30", "2024-02-29 12:30:15GMT+2"),
    ],
}

INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "div": "div",
    "modulo": "%",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq_null_safe": "<=>",
    "and": "and",
    "or": "or",
    "like": "like",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
}
SPARK_NAMES = {
    "is_nan": "isnan",
    "is_null": "isnull",
    "is_not_null": "isnotnull",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "day_of_week": "dayofweek",
    "day_of_year": "dayofyear",
    "week": "weekofyear",
    "negate": "negative",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe")
MATHEMATICS = ("sign", "sqrt", "exp", "ln", "log10", "log2", "sin", "cos", "tan", "atan", "degrees", "radians")
OF_DATES = ("year", "month", "day", "day_of_week", "day_of_year", "quarter", "week")
LIKE_PATTERNS = [
    None,
    "",
    "%",
    "abc",
    "a%",
    "%c",
    "%b%",
    "_",
    "a_c",
    "日%",
    "a\\%b\\_c\\\\d",
    "%\\_%",
    "A%f",
    "__",
    "%\n",
]


def sql_call(function: str, args: list[str]) -> str:
    if function in INFIX:
        return f"({args[0]} {INFIX[function]} {args[1]})"
    if function.startswith("cast:"):
        return f"CAST({args[0]} AS {function.removeprefix('cast:')})"
    if function == "not":
        return f"(NOT {args[0]})"
    if function == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    if function == "case":
        branches = "".join(f" WHEN {c} THEN {v}" for c, v in zip(args[:-1:2], args[1::2], strict=True))
        return f"CASE{branches} ELSE {args[-1]} END"
    return f"{SPARK_NAMES.get(function, function)}({', '.join(args)})"


def sql_literal(type_: str, value: Any) -> str:
    if value is None:
        return "NULL" if type_ == "NULL" else f"CAST(NULL AS {type_})"
    if type_ == "STRING":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t") + "'"
    if type_ == "DATE":
        return f"date_from_unix_date({value})"
    if type_ == "TIMESTAMP":
        return f"timestamp_micros(CAST('{value}' AS BIGINT))"
    if type_ == "INTERVAL":
        seconds, micros = divmod(abs(value), 1_000_000)
        return f"INTERVAL '{'-' if value < 0 else ''}{seconds}.{micros:06d}' SECOND"
    return f"CAST('{value}' AS {type_})"


def encode(value: Any) -> Any:
    """JSON has no NaN and infinities: floats are written as Python prints them."""
    return repr(value) if isinstance(value, float) else value


def cases() -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """function, argument types, rows of arguments"""
    for function in ("add", "subtract", "multiply", "divide", "modulo"):
        for type_ in (*INTEGERS, *FLOATS):
            yield function, (type_, type_), list(product(FEW[type_], FEW[type_]))
        for pair in (
            ("INT", "BIGINT"),
            ("INT", "FLOAT"),
            ("FLOAT", "DOUBLE"),
            ("SMALLINT", "DOUBLE"),
            ("TINYINT", "INT"),
        ):
            yield function, pair, list(product(FEW[pair[0]][:6], FEW[pair[1]][:6]))
        yield function, ("STRING", "INT"), list(product(["5", " 6 ", "x", "1.5", None], [2, None]))
        yield function, ("DOUBLE", "STRING"), list(product([2.5, None], ["5", "1e2", "x"]))
    for type_ in (*INTEGERS, "STRING"):
        values = FEW[type_] if type_ != "STRING" else ["7", "x", None]
        yield "div", (type_, "BIGINT"), list(product(values, [None, 0, 1, -1, 2, -2, -(2**63)]))
    for function in ("add", "subtract"):
        intervals = [0, 1, 90_000_000, -5_400_000_000, 86_400_000_000]
        yield function, ("TIMESTAMP", "INTERVAL"), list(product(MANY["TIMESTAMP"], intervals))
        yield function, ("DATE", "INTERVAL"), list(product(FEW["DATE"], intervals))
        yield function, ("DATE", "INT"), list(product(FEW["DATE"], [None, 0, 1, -400]))
    yield "add", ("INTERVAL", "TIMESTAMP"), list(product([1, -1_500_000], FEW["TIMESTAMP"]))
    for type_ in (*INTEGERS, *FLOATS):
        for function in ("negate", "abs", "round", "sign", "ceil", "floor", "is_nan"):
            yield function, (type_,), [(v,) for v in MANY[type_]]
        for digits in (-20, -3, -2, -1, 0, 1, 2, 5, 20):
            yield "round", (type_, "INT"), [(v, digits) for v in MANY[type_]]
    for type_ in TYPES[1:]:
        for function in COMPARISONS:
            yield function, (type_, type_), list(product(FEW[type_], FEW[type_]))
        for function in ("greatest", "least"):
            yield function, (type_, type_), list(product(FEW[type_], FEW[type_]))
        some = FEW[type_][:6]
        for function in ("coalesce", "nullif"):
            yield function, (type_, type_), list(product(some, some))
        yield "greatest", (type_,) * 3, [(a, None, b) for a, b in product(some, some)]
        yield "in", (type_,) * 4, [(v, some[1], some[2], some[-1]) for v in FEW[type_]]
        yield "in", (type_,) * 3, [(v, some[1], None) for v in FEW[type_]]
        for function in ("is_null", "is_not_null"):
            yield function, (type_,), [(v,) for v in FEW[type_][:3]]
        yield "if", ("BOOLEAN", type_, type_), [(c, some[1], some[2]) for c in (True, False, None)]
        conditions = list(product((True, False, None), repeat=2))
        yield (
            "case",
            ("BOOLEAN", type_, "BOOLEAN", type_, type_),
            [(c, some[1], d, some[2], None) for c, d in conditions],
        )
        yield "length", (type_,), [(v,) for v in MANY[type_][:5]]
    for pair in (
        ("INT", "STRING"),
        ("DOUBLE", "STRING"),
        ("BOOLEAN", "STRING"),
        ("DATE", "STRING"),
        ("TIMESTAMP", "STRING"),
    ):
        texts = ["1", "1.5", "true", "2024-02-29", "x", None]
        for function in (*COMPARISONS[:3], "coalesce", "nullif"):
            yield function, pair, list(product(FEW[pair[0]][:4], texts))
    yield "eq", ("DATE", "TIMESTAMP"), list(product(FEW["DATE"], FEW["TIMESTAMP"]))
    yield "lt", ("INT", "FLOAT"), list(product(FEW["INT"], FEW["FLOAT"]))
    for function in ("and", "or"):
        yield function, ("BOOLEAN", "BOOLEAN"), list(product(FEW["BOOLEAN"], FEW["BOOLEAN"]))
    yield "and", ("BOOLEAN", "STRING"), list(product(FEW["BOOLEAN"], ["true", "x", None]))
    yield "not", ("BOOLEAN",), [(v,) for v in FEW["BOOLEAN"]]

    texts = MANY["STRING"]
    for pattern in LIKE_PATTERNS:
        yield "like", ("STRING", "STRING"), [(v, pattern) for v in texts]
    for function in ("upper", "lower", "length", "trim", "ltrim", "rtrim", "reverse"):
        yield function, ("STRING",), [(v,) for v in texts]
    pieces = [None, "", "a", "b", "本", "X", "abc", "😀"]
    for function in ("starts_with", "ends_with", "contains", "instr"):
        yield function, ("STRING", "STRING"), list(product(texts, pieces))
    yield "concat", ("STRING", "STRING"), list(product(texts[:8], pieces))
    yield "concat", ("INT", "STRING", "DOUBLE"), list(product([1, None], ["-", ""], [1.5, math.nan]))
    yield "replace", ("STRING",) * 3, list(product(texts, ["", "b", "X", None], ["", "yy", None]))
    yield "replace", ("STRING",) * 2, list(product(texts, ["b", "X"]))
    places = [None, 0, 1, 2, 5, -1, -2, -9, 2**31 - 1, -(2**31)]
    cut = [None, "", "abc", "日本語テスト", "😀x"]
    yield "substring", ("STRING", "INT"), list(product(cut, places))
    yield "substring", ("STRING", "INT", "INT"), list(product(cut, places, [None, 0, 1, 3, -1, 2**31 - 1]))
    counts = [None, 0, 1, 2, 7, -1]
    for function in ("left", "right", "repeat", "lpad", "rpad"):
        yield function, ("STRING", "INT"), list(product(cut, counts))
    for function in ("lpad", "rpad"):
        yield function, ("STRING", "INT", "STRING"), list(product(cut, counts, [None, "", "*", "ab", "語"]))

    for function in MATHEMATICS:
        yield function, ("DOUBLE",), [(v,) for v in MANY["DOUBLE"]]
        yield function, ("INT",), [(v,) for v in (4, -1, None)]
    small = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, math.nan, math.inf, -math.inf]
    for function in ("pow", "atan2"):
        yield function, ("DOUBLE", "DOUBLE"), list(product(small, small))
    for type_ in INTEGERS:
        for function in ("bitand", "bitor", "bitxor"):
            yield function, (type_, type_), list(product(FEW[type_], FEW[type_]))
        for function in ("shiftleft", "shiftright"):
            yield function, (type_, "INT"), list(product(FEW[type_], [None, 0, 1, 31, 33, 64, -1]))

    for type_ in ("DATE", "TIMESTAMP"):
        for function in (*OF_DATES, "to_date", "hour"):
            yield function, (type_,), [(v,) for v in MANY[type_]]
    for function in ("hour", "minute", "second", "unix_micros", "unix_millis", "unix_seconds"):
        yield function, ("TIMESTAMP",), [(v,) for v in MANY["TIMESTAMP"]]
    yield "to_date", ("STRING",), [("2024-02-29",), ("2023-02-29",), (None,)]
    units = ("microsecond", "millisecond", "second", "minute", "HOUR", "day", "week", "Month", "quarter", "year")
    for unit in (*units, None):
        yield "date_trunc", ("STRING", "TIMESTAMP"), [(unit, v) for v in MANY["TIMESTAMP"]]
    numbers = [None, 0, 1, -1, 1_700_000_000, 2**63 - 1, -(2**63), 9_223_372_036_854, -9_223_372_036_855]
    for function in ("timestamp_micros", "timestamp_millis", "timestamp_seconds"):
        yield function, ("BIGINT",), [(v,) for v in numbers]
        yield function, ("INT",), [(v,) for v in (-1, 2**31 - 1)]
    yield "timestamp_seconds", ("DOUBLE",), [(v,) for v in (None, 1.5, -0.1, math.nan, math.inf, 1e300, 1700000000.123)]
    yield "date_add", ("DATE", "INT"), list(product(FEW["DATE"], [None, 0, 1, -1, 366, 2**31 - 1]))
    yield "datediff", ("DATE", "DATE"), list(product(FEW["DATE"], FEW["DATE"]))
    yield "datediff", ("TIMESTAMP", "STRING"), [(1_500_000, "1969-12-31"), (0, "x")]

    for target in TYPES[1:]:
        for source in TYPES[1:]:
            values = PARSED.get(target, MANY["STRING"]) if source == "STRING" else MANY[source]
            yield f"cast:{target}", (source,), [(v,) for v in values]


ARITIES = {
    **dict.fromkeys(("substring",), 3),
    **dict.fromkeys(
        (*INFIX, "in", "coalesce", "nullif", "greatest", "least", "contains", "starts_with", "ends_with"), 2
    ),
    **dict.fromkeys(("instr", "pow", "atan2", "left", "right", "repeat", "lpad", "datediff", "date_add", "concat"), 2),
    **dict.fromkeys(("shiftleft", "shiftright", "replace"), 2),
}
ONE_ARGUMENT = (
    *("negate", "abs", "round", "ceil", "floor", "is_nan", "not", "is_null", "is_not_null", "upper", "lower", "length"),
    *("trim", "ltrim", "rtrim", "reverse", "hour", "minute", "second", "to_date", *MATHEMATICS, *OF_DATES),
    *("unix_micros", "unix_millis", "unix_seconds", "timestamp_micros", "timestamp_millis", "timestamp_seconds"),
)


RULES_THAT_EVALUATE = tuple(
    "org.apache.spark.sql.catalyst.optimizer." + rule
    for rule in ("ConstantFolding", "ConvertToLocalRelation", "LikeSimplification", "NullPropagation")
)
"""Spark would compute constants, and fail, while it plans."""


class Spark:
    def __init__(self) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC", "spark.log.level": "OFF"}
        settings["spark.sql.optimizer.excludedRules"] = ",".join(RULES_THAT_EVALUATE)
        logging.disable(logging.CRITICAL)
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()

    def type_of(self, expression: str, source: str = "") -> str | None:
        try:
            return str(self.session.sql(f"SELECT {expression} AS r {source}").schema[0].dataType.simpleString()).upper()
        except PySparkException:
            return None

    def evaluate(self, expressions: list[str]) -> list[Any]:
        """The values, or error classes. Each expression is evaluated alone, so that a failure fails no other."""
        selected = ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))
        plan = self.session.sql(f"SELECT {selected}")._jdf.queryExecution().optimizedPlan()
        aliases = plan.expressions()
        return [self._evaluate_one(aliases.apply(i).child()) for i in range(len(expressions))]

    def _evaluate_one(self, expression: Any) -> Any:
        try:
            value = expression.eval(None)
        except PySparkException as error:
            return {"error": error.getCondition() or type(error).__name__}
        except Py4JJavaError as error:
            return {"error": error.java_exception.getClass().getSimpleName()}
        return encode(value if isinstance(value, bool | int | float | NoneType) else value.toString())


def make_values(spark: Spark) -> None:
    with (GOLDEN / "values.jsonl").open("w", encoding="utf-8") as out:
        for function, types, rows in cases():
            calls = [sql_call(function, [sql_literal(t, v) for t, v in zip(types, row, strict=True)]) for row in rows]
            type_ = spark.type_of(calls[0])
            if type_ is None:
                continue
            results = spark.evaluate(calls)
            told = [[*(encode(v) for v in row), result] for row, result in zip(rows, results, strict=True)]
            line = {"function": function, "types": types, "type": type_, "rows": told}
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def make_types(spark: Spark) -> None:
    fields = ", ".join(f"{sql_literal(t, None)} AS c_{t}" for t in TYPES)
    source = f"FROM (SELECT {fields} FROM range(1))"
    functions = {**dict.fromkeys(ONE_ARGUMENT, 1), **ARITIES, **{f"cast:{t}": 1 for t in TYPES[1:]}}
    with (GOLDEN / "types.jsonl").open("w", encoding="utf-8") as out:
        for function, arity in functions.items():
            for types in product(TYPES, repeat=min(arity, 2)):
                args = [*(f"c_{t}" for t in types), *("1" for _ in range(arity - 2))]
                type_ = spark.type_of(sql_call(function, args), source)
                whole = [*types, *("INT" for _ in range(arity - 2))]
                out.write(
                    json.dumps({"function": function, "types": whole, "type": type_}).replace("VOID", "NULL") + "\n"
                )


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    spark = Spark()
    make_values(spark)
    make_types(spark)
    spark.session.stop()
