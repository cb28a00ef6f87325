-- What only PostgreSQL needs.

-- The last commit of every connection, in a row of its own: after a connection is lost during COMMIT, this tells whether
-- the commit took place.
CREATE TABLE sessions (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    tag        BIGINT NOT NULL,
    at_ms      BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Rows that are written again and again keep room for their next version on their own page, so that a heartbeat writes no
-- index.
ALTER TABLE leases SET (fillfactor = 60);
ALTER TABLE agents SET (fillfactor = 60);
ALTER TABLE servers SET (fillfactor = 50);
ALTER TABLE links SET (fillfactor = 60);
ALTER TABLE tasks SET (fillfactor = 80);
-- The queue is ever changing: what is ready now must not be judged by yesterday's statistics, and dead entries at the
-- head of the ready index are what a claim would have to step over.
ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE timers SET (autovacuum_vacuum_scale_factor = 0.02);
