-- Accidents: at each minute, the segments where two cars have stopped at one spot.
INSERT INTO stops
SELECT road, lane, seg, pos, 1 AS cars FROM reports WHERE stops
UNION ALL SELECT old_road, old_lane, old_seg, old_pos, -1 FROM reports WHERE goes_on;

CREATE TABLE spots (road INT, lane INT, seg INT, pos INT, cars INT, PRIMARY KEY (road, lane, seg, pos));
ON stops AS s UPSERT INTO spots VALUES (s.road, s.lane, s.seg, s.pos, COALESCE(spots.cars, 0) + s.cars);
ON stops AS s DELETE FROM spots
    WHERE spots.cars = 0 AND spots.road = s.road AND spots.lane = s.lane AND spots.seg = s.seg AND spots.pos = s.pos;

INSERT INTO accidents
SELECT road, seg FROM spots [SLIDE 1 MINUTE] WHERE cars >= 2 GROUP BY road, seg;

-- Their zones: the segment itself and the four before it in driving direction.
INSERT INTO zones
SELECT road, seg, 0 AS ahead FROM accidents
UNION ALL SELECT road, IF(road % 2 = 0, seg - 1, seg + 1), 1 FROM accidents
UNION ALL SELECT road, IF(road % 2 = 0, seg - 2, seg + 2), 2 FROM accidents
UNION ALL SELECT road, IF(road % 2 = 0, seg - 3, seg + 3), 3 FROM accidents
UNION ALL SELECT road, IF(road % 2 = 0, seg - 4, seg + 4), 4 FROM accidents;

-- Segments: what holds for a minute is known when it begins. 5 segments ahead is too far to matter.
INSERT INTO conditions
SELECT road, seg, MAX(lav) AS lav, MAX(cars) AS cars, MIN(ahead) AS ahead
FROM (SELECT road, seg, lav, cars, 5 AS ahead FROM traffic
      UNION ALL SELECT road, seg, 0 AS lav, 0L AS cars, ahead FROM zones) [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY road, seg;

CREATE TABLE segments (road INT, seg INT, minute BIGINT, lav INT, toll BIGINT, accident INT, PRIMARY KEY (road, seg));
ON conditions AS c UPSERT INTO segments VALUES (
    c.road, c.seg, unix_seconds(c.window_end) DIV 60, c.lav,
    IF(c.cars > 50 AND c.lav < 40 AND c.ahead = 5, 2 * (c.cars - 50) * (c.cars - 50), 0),
    IF(c.ahead = 5, NULL, IF(c.road % 2 = 0, c.seg + c.ahead, c.seg - c.ahead)));

-- Tolls: that of a segment is charged when the car enters the next one, and forgotten where it leaves the road before.
INSERT INTO tolls
SELECT r.time, r.vid, r.road, r.lane <> 4 AS stays, r.begins OR r.moves AS enters, r.moves AND NOT r.begins AS pays,
       COALESCE(s.lav, 0) AS lav, s.accident, IF(r.lane <> 4, COALESCE(s.toll, 0), 0) AS toll
FROM reports AS r LEFT JOIN segments AS s ON s.road = r.road AND s.seg = r.seg AND s.minute = r.time DIV 60
WHERE r.begins OR r.moves OR r.lane = 4;

CREATE TABLE accounts (vid INT PRIMARY KEY, balance BIGINT, toll BIGINT);
ON tolls AS t UPSERT INTO accounts VALUES (
    t.vid, COALESCE(accounts.balance, 0) + IF(t.pays, COALESCE(accounts.toll, 0), 0), t.toll);

-- The ten weeks before: what each car paid on each day on each expressway.
CREATE TABLE history (vid INT, day INT, xway INT, toll INT, PRIMARY KEY (vid, day, xway)) FROM $tolls;

-- The answers. A balance is that after all reports of its second: rows of a subquery see all changes of their time.
CREATE QUERY toll_notifications AS
SELECT vid, time, lav, toll FROM tolls WHERE enters AND stays;

CREATE QUERY accident_alerts AS
SELECT time, road DIV 2 AS xway, accident AS seg, road % 2 AS dir, vid 
FROM tolls WHERE enters AND stays AND accident IS NOT NULL;

CREATE QUERY balances AS
SELECT q.time, q.qid, COALESCE(a.balance, 0) AS balance
FROM (SELECT time, qid, vid FROM input WHERE type = 2) AS q LEFT JOIN accounts AS a ON a.vid = q.vid;

CREATE QUERY expenditures AS
SELECT q.time, q.qid, h.toll
FROM input AS q JOIN history AS h ON h.vid = q.vid AND h.day = q.day AND h.xway = q.xway
WHERE q.type = 3 AND q.day <> 0;
