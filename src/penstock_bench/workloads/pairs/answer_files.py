"""Files of answers: the two output streams Indicator and MarketOrder, as a system wrote them or as they are expected.

A folder has `Indicator` and `MarketOrder` as .parquet or .csv, with the names of the thesis' Figure 7.8 in any order;
inputTS may be missing. A single file is a log of both: CSV without a header, the name of the stream first, then its
seven columns.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from penstock.errors import InputError
from penstock_bench.workloads.pairs.validator import INDICATOR, MARKET_ORDER, Answers

STREAMS: Final = {"Indicator": INDICATOR, "MarketOrder": MARKET_ORDER}
_SUMMARY = "summary.json"
_LOG_COLUMNS = ["stream", *(f"column{number}" for number in range(7))]


def write_answers(folder: Path, answers: Answers) -> None:
    """The expected answers, for other tools and for a later validation of the same input."""
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(answers.indicators, folder / "Indicator.parquet")
    parquet.write_table(answers.orders, folder / "MarketOrder.parquet")
    closest = answers.closest if math.isfinite(answers.closest) else None
    (folder / _SUMMARY).write_text(json.dumps({"stopLosses": answers.stop_losses, "closest": closest}) + "\n")


def read_expected(folder: Path) -> Answers:
    """What `write_answers` wrote there."""
    answers = read_answers(folder)
    try:
        summary = json.loads((folder / _SUMMARY).read_text())
        closest = summary["closest"]
        return Answers(
            answers.indicators,
            answers.orders,
            int(summary["stopLosses"]),
            math.inf if closest is None else float(closest),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / _SUMMARY}: this is no summary of expected answers: {error!r}") from None


def read_answers(path: Path) -> Answers:
    """The answers of a system; extra columns are left out."""
    if path.is_dir():
        return Answers(_of_folder(path, "Indicator"), _of_folder(path, "MarketOrder"))
    if not path.is_file():
        raise InputError(f"{path}: there is no such file: name the folder or the log with the answers of the run")
    return _of_log(path)


def _of_folder(folder: Path, stream: str) -> pa.Table:
    schema = STREAMS[stream]
    found = [path for ending in ("parquet", "csv") if (path := folder / f"{stream}.{ending}").exists()]
    if not found:
        raise InputError(f"{folder}: there is neither {stream}.parquet nor {stream}.csv in it")
    path = found[0]
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path, columns=schema.names).cast(schema)
        types = csv.ConvertOptions(column_types=schema, include_columns=schema.names)
        return csv.read_csv(path, convert_options=types).cast(schema)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (pa.ArrowException, KeyError, ValueError) as error:
        names = ", ".join(schema.names)
        raise InputError(f"{path}: these are no answers ({names}): {_first_line(error)}") from None


def _of_log(path: Path) -> Answers:
    try:
        read = csv.read_csv(
            path,
            csv.ReadOptions(column_names=_LOG_COLUMNS),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(_LOG_COLUMNS, pa.string())),
        )
        tables = {}
        for stream, schema in STREAMS.items():
            rows = read.filter(pc.equal(read["stream"], stream)).select(_LOG_COLUMNS[1 : len(schema) + 1])
            tables[stream] = rows.rename_columns(schema.names).cast(schema)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise InputError(f"{path}: this is no log of answers: {_first_line(error)}") from None
    return Answers(tables["Indicator"], tables["MarketOrder"])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
