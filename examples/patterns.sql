-- Patterns over the stock stream: a jump of the price, large trades between two others, and a
-- large trade that is not followed by another.
--
--   penstock run examples/patterns.sql

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=20&seconds=3600&symbols=50';

CREATE SINK jumps TO 'out/jumps.jsonl';
CREATE SINK rises TO 'out/rises.jsonl';
CREATE SINK silences TO 'out/silences.jsonl';

-- A price 5 % above one of the last ten seconds; each trade begins one jump at most.
INSERT INTO jumps
SELECT low.Symbol, low.Price AS before, high.Price AS after, high.Timestamp AS at
FROM PATTERN SEQ(ONE Stock low, Stock high)
WHERE low.Symbol = high.Symbol AND high.Price > 1.05 * low.Price
WITHIN 10 SECONDS;

-- Large trades between two prices of which the second is higher: how many, and how much.
INSERT INTO rises
SELECT a.Symbol, a.Price AS before, b.Price AS after, COUNT(large.*) AS trades, SUM(large.Volume) AS volume
FROM PATTERN SEQ(ONE Stock a, Stock+ large, ONE Stock b)
WHERE a.Symbol = large.Symbol AND a.Symbol = b.Symbol AND b.Price > a.Price AND large.Volume > 9000
  AND COUNT(large.*) >= 3
WITHIN 1 MINUTE;

-- A large trade, and no other of the same symbol for a minute: known when the minute is over.
INSERT INTO silences
SELECT last.Symbol, last.Volume, last.Timestamp AS since
FROM PATTERN SEQ(Stock last, !Stock next)
WHERE last.Symbol = next.Symbol AND last.Volume > 9500 AND next.Volume > 9500
WITHIN 1 MINUTE;
