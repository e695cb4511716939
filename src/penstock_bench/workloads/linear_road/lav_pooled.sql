-- The latest average velocity of a segment is the mean of all speeds that were read in the last five minutes.
INSERT INTO minutes
SELECT road, seg, SUM(speed) AS speeds, COUNT(*) AS readings, COUNT(*) FILTER (WHERE is_new) AS cars
FROM reports [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY road, seg;

INSERT INTO traffic
SELECT road, seg, CAST(ROUND(SUM(speeds) / SUM(readings)) AS INT) AS lav,
       COALESCE(SUM(cars) OVER [RANGE 1 MINUTE], 0) AS cars
FROM minutes [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY road, seg;
