-- Tables over the stock stream: how much was traded of each symbol, the price before each trade,
-- and the five most traded symbols every minute.
--
--   penstock run examples/tables.sql

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=20&seconds=3600&symbols=50';

CREATE SINK moves TO 'out/moves.jsonl';
CREATE SINK leaders TO 'out/leaders.jsonl';

-- The latest trade of each symbol.
CREATE TABLE last_trade AS LAST BY Symbol FROM Stock;

-- What has been traded of it so far.
CREATE TABLE traded (Symbol STRING PRIMARY KEY, volume BIGINT NOT NULL, trades BIGINT NOT NULL);
ON Stock AS s UPSERT INTO traded (Symbol, volume, trades)
    VALUES (s.Symbol, COALESCE(traded.volume, 0) + s.Volume, COALESCE(trades, 0) + 1);

-- A price that moved by more than 5 % since the trade before.
INSERT INTO moves
SELECT s.Timestamp, s.Symbol, LAG(l.Price) AS before, s.Price AS after, traded.trades
FROM Stock AS s JOIN last_trade AS l ON s.Symbol = l.Symbol JOIN traded ON s.Symbol = traded.Symbol
WHERE ABS(s.Price - LAG(l.Price)) > 0.05 * s.Price;

INSERT INTO leaders
SELECT Symbol, volume FROM traded [SLIDE 1 MINUTE] ORDER BY volume DESC, Symbol LIMIT 5;
