-- Volume-weighted average price of each stock over the last hour, brought up to date by every tick.
--
--   penstock run examples/vwap.sql --engine embedded --memory 4MB --limit 1000000

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=1000&seconds=7200';

CREATE SINK prices TO 'out/vwap';

INSERT INTO prices
SELECT Symbol, SUM(Volume * Price) / SUM(Volume) AS vwap
FROM Stock [RANGE 1 HOUR]
GROUP BY Symbol;
