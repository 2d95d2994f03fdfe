-- Questions to the access log of a web server, which stands in the topic 'access' as JSON.
-- log_analytics.py runs them one after the other; ${log} is the directory.

-- A view is fixed at its first query. Create it again to see newer records.
CREATE OR REPLACE TEMPORARY VIEW access_records
USING cursus OPTIONS (path '${log}', subscribe 'access');

CREATE OR REPLACE TEMPORARY VIEW access AS
SELECT timestamp, partition, offset, line.*
FROM (
  SELECT *, from_json(string(value), 'host string, path string, status int, ms double') AS line
  FROM access_records
);

-- How is each page doing?
SELECT path,
       count(*)                                              AS requests,
       round(100 * count_if(status >= 500) / count(*), 1)    AS `failed %`,
       round(percentile_approx(ms, 0.5))                     AS median_ms,
       round(percentile_approx(ms, 0.95))                    AS p95_ms
FROM access
GROUP BY path
ORDER BY requests DESC;

-- When did it go wrong? Five minutes with more than one failure in twenty.
SELECT window.start AS since, count(*) AS requests, count_if(status >= 500) AS failed
FROM access
GROUP BY window(timestamp, '5 minutes')
HAVING failed > 0.05 * requests
ORDER BY since;

-- Who was hit first? Offsets lead back to the records themselves.
SELECT host, min(timestamp) AS first_failure, min_by(offset, timestamp) AS at_offset
FROM access
WHERE status >= 500
GROUP BY host
ORDER BY first_failure, host
LIMIT 3;

-- What is going on now? Only the last minutes are read: a time is an option of the view, not a filter.
CREATE OR REPLACE TEMPORARY VIEW recent
USING cursus OPTIONS (path '${log}', subscribe 'access', startingTimestamp '2026-01-05T09:50:00Z');

SELECT count(*) AS requests_of_the_last_minutes FROM recent;
