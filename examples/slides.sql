-- Many slides over one stream, by event time and by count. The windows are stored once; the picture shows who shares
-- them, and which slides divide which.
--
--   penstock graph examples/slides.sql -o out/slides.svg
--   penstock run examples/slides.sql --engine embedded --limit 100000

CREATE STREAM Stock (
    Timestamp TIMESTAMP NOT NULL,
    Symbol    STRING,
    Price     DOUBLE,
    Volume    INT,
    EVENT TIME Timestamp
) FROM 'generate:stock?rate=100&seconds=7200&symbols=5';

CREATE SINK means TO 'out/means.jsonl';

CREATE QUERY mean_1h  AS SELECT Symbol, AVG(Price) AS mean FROM Stock [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY Symbol;
CREATE QUERY mean_6h  AS SELECT Symbol, AVG(Price) AS mean FROM Stock [RANGE 6 HOURS SLIDE 20 SECONDS] GROUP BY Symbol;
CREATE QUERY mean_12h AS SELECT Symbol, AVG(Price) AS mean FROM Stock [RANGE 12 HOURS SLIDE 1 MINUTE] GROUP BY Symbol;

INSERT INTO means SELECT Symbol, AVG(Price) AS mean FROM Stock [RANGE 24 HOURS SLIDE 5 MINUTES] GROUP BY Symbol;

CREATE QUERY spread   AS SELECT Symbol, MAX(Price) - MIN(Price) AS spread
                         FROM Stock [RANGE 24 HOURS SLIDE 15 SECONDS] GROUP BY Symbol;
CREATE QUERY volume   AS SELECT SUM(Volume) AS total FROM Stock [RANGE 24 HOURS SLIDE 25 SECONDS];
CREATE QUERY median   AS SELECT MEDIAN(Price) AS median FROM Stock [ROWS 10000 SLIDE 100 ROWS];
CREATE QUERY busiest  AS SELECT Symbol, COUNT(*) AS n FROM Stock [ROWS 10000 SLIDE 250 ROWS] GROUP BY Symbol;
CREATE QUERY tail     AS SELECT MIN(Price) AS least FROM Stock [ROWS 500 SLIDE 500 ROWS];

INSERT INTO bars
SELECT Symbol, FIRST(Price) AS open, MAX(Price) AS high FROM Stock [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY Symbol;

CREATE QUERY highest  AS SELECT Symbol, MAX(high) AS high FROM bars [RANGE 1 HOUR SLIDE 10 MINUTES] GROUP BY Symbol;
