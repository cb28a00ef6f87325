-- Sequence numbers that a reader can resume from. A number is its transaction's id, then its place in that transaction:
-- whatever a transaction still writes has a higher number than everything below the oldest open one (tenure_horizon), so
-- that who has read up to there misses nothing, in whatever order transactions commit.
--
-- `base` lifts the numbers of a cluster whose transaction ids began again below the ones already used (a dump restored
-- elsewhere); see Schema.lift_numbers.

CREATE TABLE numbering (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    base BIGINT NOT NULL
);
INSERT INTO numbering (id, base) VALUES (1, 0);

CREATE FUNCTION tenure_seq() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    place bigint := coalesce(nullif(current_setting('tenure.place', true), ''), '0')::bigint;
BEGIN
    PERFORM set_config('tenure.place', (place + 1)::text, true);
    IF place >= 262144 THEN
        RAISE EXCEPTION 'one transaction numbers at most 262144 rows' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    RETURN ((pg_current_xact_id()::text::bigint + (SELECT base FROM numbering)) << 18) | place;
END $$;

CREATE FUNCTION tenure_horizon() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << 18 FROM numbering
$$;
