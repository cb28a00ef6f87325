-- Numbers as in 0000_numbers.sql, had sooner: a transaction keeps its last number in a setting which ends with it; only
-- its first row looks at `base`.
CREATE OR REPLACE FUNCTION tenure_seq() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    seq bigint := nullif(current_setting('tenure.seq', true), '')::bigint + 1;
BEGIN
    IF seq IS NULL THEN
        seq := (pg_current_xact_id()::text::bigint + (SELECT base FROM numbering)) << 18;
    ELSIF seq & 262143 = 0 THEN
        RAISE EXCEPTION 'one transaction numbers at most 262144 rows' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    -- An expression, and not PERFORM, which would run a query.
    RETURN set_config('tenure.seq', seq::text, true)::bigint;
END $$;
