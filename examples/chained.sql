-- Queries that feed each other: one-minute bars of each stock, and from the bars the highest close of the last hour.
-- A derived stream's events carry the end of their window as time, so the two windows line up.
--
--   penstock run examples/chained.sql

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=100&seconds=7200&symbols=5';

INSERT INTO bars
SELECT Symbol, FIRST(Price) AS open, MAX(Price) AS high, MIN(Price) AS low, LAST(Price) AS close, SUM(Volume) AS volume
FROM Stock [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY Symbol;

CREATE SINK highs TO 'out/highs.jsonl';

INSERT INTO highs
SELECT Symbol, MAX(close) AS highest_close, COUNT(*) AS bars
FROM bars [RANGE 1 HOUR SLIDE 10 MINUTES]
GROUP BY Symbol
HAVING COUNT(*) > 5;
