-- Queries about the access log of a web server, which is in the topic 'access' as JSON.
-- log_analytics.py runs them one after another; ${log} is the directory.

-- A view reads the log once, at its first query. Create it again to see newer records.
CREATE OR REPLACE TEMPORARY VIEW access_records
USING cursus OPTIONS (path '${log}', subscribe 'access');

CREATE OR REPLACE TEMPORARY VIEW access AS
SELECT timestamp, partition, offset, line.*
FROM (
  SELECT *, from_json(string(value), 'host string, path string, status int, ms double') AS line
  FROM access_records
);

-- How fast is each page, and how often does it fail?
SELECT path,
       count(*)                                              AS requests,
       round(100 * count_if(status >= 500) / count(*), 1)    AS `failed %`,
       round(percentile_approx(ms, 0.5))                     AS median_ms,
       round(percentile_approx(ms, 0.95))                    AS p95_ms
FROM access
GROUP BY path
ORDER BY requests DESC;

-- When did it fail? Windows of five minutes with more than one failure in twenty requests.
SELECT window.start AS since, count(*) AS requests, count_if(status >= 500) AS failed
FROM access
GROUP BY window(timestamp, '5 minutes')
HAVING failed > 0.05 * requests
ORDER BY since;

-- Which hosts failed first? The offset leads to the record.
SELECT host, min(timestamp) AS first_failure, min_by(offset, timestamp) AS at_offset
FROM access
WHERE status >= 500
GROUP BY host
ORDER BY first_failure, host
LIMIT 3;

-- What happens now? The view reads only the last minutes: a start time is an option, not a filter.
CREATE OR REPLACE TEMPORARY VIEW recent
USING cursus OPTIONS (path '${log}', subscribe 'access', startingTimestamp '2026-01-05T09:50:00Z');

SELECT count(*) AS requests_of_the_last_minutes FROM recent;
