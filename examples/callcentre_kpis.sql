-- The call centre's 144 KPIs over the last 24 hours, brought up to date every 10 seconds: COUNT, SUM and AVG of six
-- durations by each of eight keys, as in "Overcoming Memory Limitations in High-Throughput Event-Based Applications".
-- Rows are stored once for all; the 48 queries are 8 aggregations, and their 144 KPIs are 104 aggregates of 56 states,
-- as EXPLAIN says. ISTREAM gives what has changed, seven rows for each event. Two minutes of events at 100 a second; give
-- `rate=1000&seconds=172800` for two days of the paper's call centre, with 80,000 groups.
--
--   penstock run --engine embedded examples/callcentre_kpis.sql --memory 64MB > kpis.jsonl
--   penstock run examples/callcentre_kpis.sql --memory 256MB > kpis.jsonl

CREATE STREAM AgentInteractions (
    timestamp TIMESTAMP NOT NULL,
    instance INT NOT NULL,
    serviceId INT NOT NULL,
    agentId INT NOT NULL,
    mediaId INT NOT NULL,
    interactionLegId INT NOT NULL,
    agentSite INT NOT NULL,
    callSite INT NOT NULL,
    direction INT NOT NULL,
    alertingTime INT NOT NULL,
    busyTime INT NOT NULL,
    wrapUpTime INT NOT NULL,
    waitTime INT NOT NULL,
    helpTime INT NOT NULL,
    availableTime INT NOT NULL,
    EVENT TIME timestamp
) FROM 'generate:callcentre?rate=100&seconds=120';

CREATE QUERY alertingTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY busyTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY wrapUpTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY waitTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY helpTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY availableTime_by_instance AS
SELECT ISTREAM instance, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY instance;
CREATE QUERY alertingTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY busyTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY wrapUpTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY waitTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY helpTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY availableTime_by_serviceId AS
SELECT ISTREAM serviceId, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY serviceId;
CREATE QUERY alertingTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY busyTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY wrapUpTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY waitTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY helpTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY availableTime_by_agentId AS
SELECT ISTREAM agentId, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentId;
CREATE QUERY alertingTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY busyTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY wrapUpTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY waitTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY helpTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY availableTime_by_mediaId AS
SELECT ISTREAM mediaId, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY mediaId;
CREATE QUERY alertingTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY busyTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY wrapUpTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY waitTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY helpTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY availableTime_by_interactionLegId AS
SELECT ISTREAM interactionLegId, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY interactionLegId;
CREATE QUERY alertingTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY busyTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY wrapUpTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY waitTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY helpTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY availableTime_by_agentSite AS
SELECT ISTREAM agentSite, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY agentSite;
CREATE QUERY alertingTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY busyTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY wrapUpTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY waitTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY helpTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY availableTime_by_callSite AS
SELECT ISTREAM callSite, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY callSite;
CREATE QUERY alertingTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(alertingTime) AS total, AVG(alertingTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
CREATE QUERY busyTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(busyTime) AS total, AVG(busyTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
CREATE QUERY wrapUpTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(wrapUpTime) AS total, AVG(wrapUpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
CREATE QUERY waitTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(waitTime) AS total, AVG(waitTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
CREATE QUERY helpTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(helpTime) AS total, AVG(helpTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
CREATE QUERY availableTime_by_direction AS
SELECT ISTREAM direction, COUNT(*) AS calls, SUM(availableTime) AS total, AVG(availableTime) AS mean
FROM AgentInteractions [RANGE 24 HOURS SLIDE 10 SECONDS] GROUP BY direction;
