-- Rules: what is to be done when something becomes true. A stock whose price over the last minute is above that of the
-- last ten is told once, when it gets there, and again only after it has come back.
--
--   penstock run examples/rules.sql
--   penstock explain examples/rules.sql
--
-- To have a server told as well, declare it and add its call to a rule:
--
--   CREATE FUNCTION notify AS HTTP POST 'https://example.org/alarms' WITH ('header.Authorization' = 'env:TOKEN');
--   ... THEN EMIT INTO risen SELECT ..., CALL notify(symbol, now, before)

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=100&seconds=7200&symbols=5';

CREATE SINK alarms TO 'out/alarms.jsonl';
CREATE SINK busy TO 'out/busy.jsonl';

CREATE RULE high
WHEN SELECT Symbol, AVG(Price) OVER [RANGE 1 MINUTE] AS now, AVG(Price) AS before
     FROM Stock [RANGE 10 MINUTES SLIDE 10 SECONDS]
     GROUP BY Symbol
     HAVING AVG(Price) OVER [RANGE 1 MINUTE] > 1.002 * AVG(Price)
THEN EMIT INTO risen SELECT Symbol, now, before, window_end AS at,
     EMIT INTO alarms;

-- The firings are a stream: stocks that rose three times within the hour.
CREATE RULE restless
WHEN SELECT Symbol, COUNT(*) AS times FROM risen [RANGE 1 HOUR] GROUP BY Symbol HAVING COUNT(*) >= 3
THEN EMIT INTO busy;
