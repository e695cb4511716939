-- The latest average velocity of a segment is the mean of the last five minutes' means, each over the means of its cars.
INSERT INTO minutes
SELECT road, seg, AVG(speed) AS speed, COUNT(*) AS cars
FROM (SELECT road, seg, vid, AVG(speed) AS speed
      FROM reports [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY road, seg, vid) [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY road, seg;

INSERT INTO traffic
SELECT road, seg, CAST(ROUND(AVG(speed)) AS INT) AS lav, COALESCE(SUM(cars) OVER [RANGE 1 MINUTE], 0) AS cars
FROM minutes [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY road, seg;
