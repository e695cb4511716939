-- Rolling key figures of a call centre: the last 24 hours for each service, brought up to date every 10 seconds.
-- Two hours of events at 200 a second; give `rate=1000&seconds=172800` for two days of a large call centre.
--
--   penstock run examples/callcentre.sql --memory 16MB

CREATE STREAM AgentInteractions (
    timestamp              TIMESTAMP NOT NULL,
    instance               INT,
    start                  BIGINT,
    sessionId              INT,
    serviceId              INT,
    agentId                INT,
    interactionLegId       INT,
    alertingTime           INT,
    busyTime               INT,
    wrapUpTime             INT,
    waitTime               INT,
    direction              INT,
    mediaId                INT,
    helpTime               INT,
    agentReleased          BOOLEAN,
    mediaOutcome           INT,
    finalSegment           BOOLEAN,
    agentSite              INT,
    callSite               INT,
    availableTime          INT,
    availableTimeByService INT,
    held                   INT,
    help                   INT,
    EVENT TIME timestamp
) FROM 'generate:callcentre?rate=200&seconds=7200';

CREATE SINK kpis TO 'out/callcentre.csv';

INSERT INTO kpis
SELECT serviceId,
       COUNT(*)      AS calls,
       SUM(busyTime) AS busy_ms,
       AVG(busyTime) AS busy_ms_per_call,
       AVG(waitTime) AS wait_ms_per_call
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS]
GROUP BY serviceId;
