-- How the segments were in the ten weeks before, by the day of the week and the hour of the day.
CREATE TABLE speeds (
    xway INT, dir INT, seg INT, dow INT, hour INT, lav INT, toll INT, PRIMARY KEY (xway, dir, seg, dow, hour)
) FROM $segments;

-- A journey takes the sum of what its segments, each a mile long, took at its hour.
CREATE QUERY travel_times AS
SELECT time, qid, SUM(seconds) AS seconds, SUM(toll) AS toll
FROM (SELECT q.time, q.qid, CAST(ROUND(3600 / s.lav) AS INT) AS seconds, s.toll
      FROM input AS q JOIN speeds AS s
           ON s.xway = q.xway AND s.dir = IF(q.s_init <= q.s_end, 0, 1) AND s.dow = q.dow AND s.hour = (q.tod - 1) DIV 60
           AND s.seg BETWEEN LEAST(q.s_init, q.s_end) AND GREATEST(q.s_init, q.s_end)
      WHERE q.type = 4) [RANGE 1 SECOND SLIDE 1 SECOND]
GROUP BY time, qid;
