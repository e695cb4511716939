"""The 144 KPIs of the SlideM paper over the call-centre stream, as queries."""

from __future__ import annotations

from penstock.generators.callcentre import FIELDS, GROUP_KEYS, STREAM


def kpi_queries(window: str = "RANGE 24 HOURS SLIDE 10 SECONDS", emit: str = "ISTREAM") -> str:
    """The paper's 144 KPIs: its Query 2 for six fields and eight keys, named `busyTime_by_serviceId` and so on."""
    return "\n".join(
        f"""
CREATE QUERY {field}_by_{key} AS
SELECT {emit} {key}, COUNT(*) AS calls, SUM({field}) AS total, AVG({field}) AS mean
FROM {STREAM} [{window}] GROUP BY {key};""".strip()
        for key in GROUP_KEYS
        for field in FIELDS
    )


def kpis_by_key(window: str) -> str:
    """The same 144 KPIs with one query for each key, named `by_serviceId` and so on: where all rows of a look are
    results, and not only those that changed, the number of calls need not be said six times."""
    measures = ", ".join(f"SUM({field}) AS {field}_total, AVG({field}) AS {field}_mean" for field in FIELDS)
    return "\n".join(
        f"CREATE QUERY by_{key} AS SELECT {key}, COUNT(*) AS calls, {measures} FROM {STREAM} [{window}] GROUP BY {key};"
        for key in GROUP_KEYS
    )


def kpi_stream_sql(uri: str) -> str:
    """The stream with the columns that the KPIs read, none of which is ever NULL."""
    columns = "".join(f"    {name} INT NOT NULL,\n" for name in (*GROUP_KEYS, *FIELDS))
    return (
        f"CREATE STREAM {STREAM} (\n    timestamp TIMESTAMP NOT NULL,\n{columns}    EVENT TIME timestamp\n)"
        f" FROM '{uri}';"
    )
