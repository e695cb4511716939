-- Position reports (type 0) and questions: balance (2), daily expenditure (3), travel time (4).
CREATE STREAM input (
    type INT NOT NULL, time BIGINT NOT NULL, vid INT NOT NULL, speed INT NOT NULL,
    xway INT NOT NULL, lane INT NOT NULL, dir INT NOT NULL, seg INT NOT NULL, pos INT NOT NULL,
    qid INT NOT NULL, s_init INT NOT NULL, s_end INT NOT NULL, dow INT NOT NULL, tod INT NOT NULL, day INT NOT NULL,
    EVENT TIME time UNIT SECONDS
);

-- Each direction of an expressway is a road of its own.
INSERT INTO positions
SELECT time, vid, speed, 2 * xway + dir AS road, lane, seg, pos FROM input WHERE type = 0;

-- Cars: the last report of each, and how many times in a row it has come from there. A car in lane 4 has left the road,
-- and its last report stays what it is until it comes by lane 0 again.
CREATE TABLE cars (vid INT PRIMARY KEY, time INT, road INT, lane TINYINT, seg TINYINT, pos INT, times SMALLINT);
ON positions AS p UPSERT INTO cars VALUES (
    p.vid,
    IF(cars.lane = 4 AND p.lane <> 0 AND p.road = cars.road, cars.time, p.time),
    p.road,
    IF(cars.lane = 4 AND p.lane <> 0 AND p.road = cars.road, 4, p.lane),
    IF(cars.lane = 4 AND p.lane <> 0 AND p.road = cars.road, cars.seg, p.seg),
    p.pos,
    IF(p.pos = cars.pos AND p.lane = cars.lane AND p.road = cars.road AND p.lane <> 4
       AND (p.lane <> 0 OR p.time <= cars.time + 60), cars.times + 1, 1));

-- Reports that count, and what they tell. A car begins a journey where it comes by lane 0 after more than a minute. It
-- is new in its segment if it was not there before in the same minute: cars report every 30 seconds, so the last report
-- tells.
INSERT INTO reports
SELECT p.time, p.vid, p.speed, p.road, p.lane, p.seg, p.pos,
       COALESCE(p.road <> PREV(c.road) OR (p.lane = 0 AND p.time > PREV(c.time) + 60), TRUE) AS begins,
       COALESCE(p.seg <> PREV(c.seg), TRUE) AS moves,
       COALESCE(p.seg <> PREV(c.seg) OR p.road <> PREV(c.road) OR p.time DIV 60 <> PREV(c.time) DIV 60, TRUE) AS is_new,
       c.times = 4 AS stops, COALESCE(c.times = 1 AND PREV(c.times) >= 4, FALSE) AS goes_on,
       PREV(c.road) AS old_road, CAST(PREV(c.lane) AS INT) AS old_lane, CAST(PREV(c.seg) AS INT) AS old_seg,
       PREV(c.pos) AS old_pos
FROM positions AS p JOIN cars AS c ON p.vid = c.vid
WHERE COALESCE(p.lane = 0 OR PREV(c.lane) <> 4 OR PREV(c.road) <> p.road, TRUE);
