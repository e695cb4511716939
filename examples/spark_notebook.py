# Cells for a notebook: VS Code, PyCharm and Jupytext open this file as one.

# %% [markdown]
# # Sliding windows in a notebook
# A result of `penstock.spark.query` is a DataFrame: it shows its columns, and its rows with `show` or `toPandas`.

# %%
from datetime import datetime, timedelta

import penstock.spark

spark = penstock.spark.session("notebook", "local[2]")

# %%
noon = datetime(2024, 3, 1, 12)
readings = spark.createDataFrame(
    [(noon + timedelta(seconds=10 * i), f"room {i % 3}", 20.0 + i % 7) for i in range(60)],
    "at timestamp, room string, celsius double",
)

# %%
warmth = penstock.spark.query(
    spark,
    {"readings": readings},
    """
    SELECT room, AVG(celsius) AS mean, MEDIAN(celsius) AS middle
    FROM readings [RANGE 5 MINUTES SLIDE 1 MINUTE]
    GROUP BY room
    """,
)
warmth  # noqa: B018

# %%
warmth.orderBy("window_end", "room").show(6)

# %% [markdown]
# Several queries at once read the data once. They come back as one tagged DataFrame; `results` takes one of them.

# %%
tagged = penstock.spark.query(
    spark,
    {"readings": readings},
    """
    CREATE QUERY jumps AS
    SELECT room, MAX(celsius) - MIN(celsius) AS jump FROM readings [RANGE 1 MINUTE SLIDE 1 MINUTE]
    GROUP BY room HAVING MAX(celsius) - MIN(celsius) > 3;
    CREATE QUERY latest AS
    SELECT room, celsius FROM readings [PARTITION BY room ROWS 1 SLIDE 5 MINUTES];
    """,
)
jumps = penstock.spark.results(tagged, "jumps")
jumps.show()
