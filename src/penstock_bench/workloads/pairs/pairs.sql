-- Pairs: trading strategies over pairs of shares, as rows of a table. Periods are made of bars of {bar} milliseconds.

CREATE STREAM ticks (
    symbol STRING NOT NULL, price INT NOT NULL, size INT, tickTS BIGINT NOT NULL, TS BIGINT,
    EVENT TIME tickTS UNIT MILLISECONDS
);
-- One event, behind the last tick: `finished` is the end of the last tick's bar, tickTS and TS are those of that tick.
CREATE STREAM ends (finished BIGINT NOT NULL, tickTS BIGINT, TS BIGINT, EVENT TIME finished UNIT MILLISECONDS);

-- The symbols that strategies watch, and the strategies; both have numbers, by which all else is kept.
CREATE TABLE symbols (symbol STRING PRIMARY KEY, share INT NOT NULL) FROM '{symbols}';
CREATE TABLE strategies (
    id INT PRIMARY KEY, strategy STRING NOT NULL, symbol1 STRING NOT NULL, symbol2 STRING NOT NULL,
    share1 INT NOT NULL, share2 INT NOT NULL, period BIGINT NOT NULL, periods INT NOT NULL
) FROM '{strategies}';
-- The first tick of the bar before.
CREATE TABLE clock (id INT PRIMARY KEY, tickTS BIGINT NOT NULL);
-- What was traded of a share since the begin: the sum of its prices, its ticks, its last price. Whole bars only.
CREATE TABLE traded (share INT PRIMARY KEY, total BIGINT NOT NULL, ticks BIGINT NOT NULL, price INT NOT NULL)
    FROM '{traded}';
-- The same of both shares of a strategy when its last period closed, and the ratio of that period.
CREATE TABLE marks (
    id INT PRIMARY KEY, total1 BIGINT NOT NULL, ticks1 BIGINT NOT NULL, total2 BIGINT NOT NULL, ticks2 BIGINT NOT NULL,
    ratio DOUBLE
) FROM '{marks}';
-- The last indicator of a strategy, and its position: which of its shares it wants and owns (0 is none).
CREATE TABLE positions (
    id INT PRIMARY KEY, multiplier DOUBLE NOT NULL, stop DOUBLE NOT NULL, ratio DOUBLE, upper DOUBLE, lower DOUBLE,
    wants INT NOT NULL, owns INT NOT NULL, entered DOUBLE, shares BIGINT NOT NULL, balance BIGINT NOT NULL
) FROM '{positions}';

-- The first tick of a bar, of whatever symbol, closes the bar before.
CREATE RULE closing
WHEN SELECT symbol, price, tickTS, TS FROM ticks BY tickTS DIV {bar}
THEN EMIT INTO closings;
ON closings UPSERT INTO clock (id, tickTS) VALUES (0, closings.tickTS);

INSERT INTO watched_ticks
SELECT s.share, t.price FROM ticks AS t JOIN symbols AS s ON s.symbol = t.symbol;
INSERT INTO bars
SELECT share, SUM(price) AS total, COUNT(*) AS ticks, LAST(price) AS price
FROM watched_ticks [RANGE {bar} MILLISECONDS SLIDE {bar} MILLISECONDS] GROUP BY share;
ON bars AS b UPDATE traded
SET total = traded.total + b.total, ticks = traded.ticks + b.ticks, price = b.price WHERE traded.share = b.share;

-- The strategies whose period the tick closes: their shares' sums up to it, and their last prices, its own included.
INSERT INTO closes
SELECT s.id, s.periods, c.TS, a.total AS total1, a.ticks AS ticks1, b.total AS total2, b.ticks AS ticks2,
       IF(n.share = s.share1, c.price, a.price) AS price1, IF(n.share = s.share2, c.price, b.price) AS price2
FROM closings AS c
JOIN clock AS k ON k.id = 0
LEFT JOIN symbols AS n ON n.symbol = c.symbol
JOIN strategies AS s ON c.tickTS DIV GREATEST(s.period, 1) > PREV(k.tickTS) DIV GREATEST(s.period, 1)
JOIN traded AS a ON a.share = s.share1
JOIN traded AS b ON b.share = s.share2;

-- The ratio of the two averages in the period, where both shares were traded in it.
ON closes AS c UPDATE marks
SET total1 = c.total1, ticks1 = c.ticks1, total2 = c.total2, ticks2 = c.ticks2,
    ratio = CASE WHEN c.ticks1 > marks.ticks1 AND c.ticks2 > marks.ticks2
        THEN ((c.total1 - marks.total1) / (c.ticks1 - marks.ticks1))
           / ((c.total2 - marks.total2) / (c.ticks2 - marks.ticks2)) END
WHERE marks.id = c.id;
INSERT INTO ratios
SELECT c.id, c.periods, c.TS, c.price1, c.price2, m.ratio
FROM closes AS c JOIN marks AS m ON m.id = c.id AND m.ratio IS NOT NULL;

INSERT INTO averages
SELECT id, periods, LAST(ratio) AS ratio, AVG(ratio) AS mean, STDDEV_SAMP(ratio) AS deviation,
       LAST(TS) AS TS, LAST(price1) AS price1, LAST(price2) AS price2
FROM ratios [PARTITION BY id, periods ROWS periods WHEN FULL] GROUP BY id, periods;

-- What a strategy wants to own after an indicator: first the crosses, then the stop loss.
ON averages AS a UPDATE positions
SET ratio = a.ratio,
    upper = a.mean + multiplier * a.deviation,
    lower = a.mean - multiplier * a.deviation,
    wants = CASE
        WHEN a.ratio >= a.mean + multiplier * a.deviation AND positions.ratio < upper
            THEN IF(owns = 2 AND a.ratio >= (1 + stop) * entered, 0, 2)
        WHEN a.ratio <= a.mean - multiplier * a.deviation AND positions.ratio > lower
            THEN IF(owns = 1 AND a.ratio <= (1 - stop) * entered, 0, 1)
        WHEN owns = 2 AND a.ratio >= (1 + stop) * entered THEN 0
        WHEN owns = 1 AND a.ratio <= (1 - stop) * entered THEN 0
        ELSE owns
    END
WHERE positions.id = a.id;
-- Procedure 4: what is owned is sold, what is wanted is bought, in tens. Without shares there is no position.
ON averages AS a UPDATE positions
SET shares = IF(wants = 0, 0, (balance + shares * IF(owns = 1, a.price1, a.price2))
        DIV (10L * IF(wants = 1, a.price1, a.price2)) * 10),
    balance = balance + shares * IF(owns = 1, a.price1, a.price2)
        - IF(wants = 0, 0, (balance + shares * IF(owns = 1, a.price1, a.price2))
            DIV (10L * IF(wants = 1, a.price1, a.price2)) * 10 * IF(wants = 1, a.price1, a.price2)),
    owns = IF(balance + shares * IF(owns = 1, a.price1, a.price2) < 10L * IF(wants = 1, a.price1, a.price2), 0, wants),
    entered = a.ratio
WHERE positions.id = a.id AND wants <> owns;

-- Which strategies have sold or bought.
INSERT INTO moves
SELECT s.strategy, s.symbol1, s.symbol2, a.price1, a.price2, unix_millis(a.window_end) AS tickTS, a.TS,
       PREV(p.owns) AS sold, PREV(p.shares) AS sold_shares, p.owns AS bought, p.shares AS bought_shares
FROM averages AS a
JOIN positions AS p ON p.id = a.id AND p.owns <> PREV(p.owns)
JOIN strategies AS s ON s.id = a.id;

-- Two queries, not a UNION ALL: a union has an order, so its second half would wait for the next tick.
CREATE QUERY sell_order AS
SELECT strategy, 'SELL' AS type, IF(sold = 1, symbol1, symbol2) AS symbol, IF(sold = 1, price1, price2) AS price,
       CAST(sold_shares AS INT) AS size, tickTS AS inputTickTS, TS AS inputTS
FROM moves WHERE sold <> 0;
CREATE QUERY buy_order AS
SELECT strategy, 'BUY' AS type, IF(bought = 1, symbol1, symbol2) AS symbol, IF(bought = 1, price1, price2) AS price,
       CAST(bought_shares AS INT) AS size, tickTS AS inputTickTS, TS AS inputTS
FROM moves WHERE bought <> 0;

CREATE QUERY indicator AS
SELECT s.strategy, a.ratio, a.mean AS avgRatio, p.upper AS upperBand, p.lower AS lowerBand,
       unix_millis(a.window_end) AS inputTickTS, a.TS AS inputTS
FROM averages AS a JOIN positions AS p ON p.id = a.id JOIN strategies AS s ON s.id = a.id;

-- The end of the run: what is owned is sold.
CREATE QUERY final_order AS
SELECT s.strategy, 'SELL' AS type, IF(p.owns = 1, s.symbol1, s.symbol2) AS symbol, t.price,
       CAST(p.shares AS INT) AS size, e.tickTS AS inputTickTS, e.TS AS inputTS
FROM ends AS e
JOIN positions AS p ON p.owns <> 0
JOIN strategies AS s ON s.id = p.id
JOIN traded AS t ON t.share = IF(p.owns = 1, s.share1, s.share2);
