-- Q3 and Q4 of the RS-Algo paper over its third workload: R has 10 events/s and 1 event/s in turns, every 10 seconds.
-- The windows of the joins hold about what comes in 10 seconds, however fast that is.
--
--   penstock run examples/rate_sizing.sql --engine embedded

CREATE STREAM d (t TIMESTAMP NOT NULL, id INT NOT NULL, payload STRING, EVENT TIME t)
    FROM 'generate:rate-sizing-d?case=3&payload=1000';
CREATE STREAM r (t TIMESTAMP NOT NULL, id INT NOT NULL, EVENT TIME t) FROM 'generate:rate-sizing-r?case=3';
CREATE STREAM m (t TIMESTAMP NOT NULL, id INT NOT NULL, EVENT TIME t) FROM 'generate:rate-sizing-m?case=3';

CREATE SINK simple TO 'out/rate_sizing_q3';
CREATE SINK complex TO 'out/rate_sizing_q4';

-- Q3-simple: what belongs to a request.
INSERT INTO simple
SELECT d.id AS id, d.t AS d_time, r.t AS r_time, d.payload AS payload
FROM d [RATE SIZED 10 SECONDS] AS d, r [RATE SIZED 10 SECONDS] AS r
WHERE d.id = r.id;

-- Q4-complex: two joins. The rate of mr is that of the first join's results, not of a stream that comes in.
INSERT INTO mr
SELECT r.id AS id, m.t AS m_time
FROM m [RATE SIZED 10 SECONDS] AS m, r [RATE SIZED 10 SECONDS] AS r
WHERE m.id = r.id;

INSERT INTO complex
SELECT d.id AS id, d.t AS d_time, mr.m_time AS m_time, d.payload AS payload
FROM d [RATE SIZED 10 SECONDS] AS d, mr [RATE SIZED 10 SECONDS] AS mr
WHERE d.id = mr.id;
