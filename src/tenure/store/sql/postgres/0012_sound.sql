-- As 0011_sound.sql has it for tasks: what the CHECKs of leases and receipts say, each in one function that is compiled
-- once for a connection. A claim and a completion each write one row of both.
CREATE FUNCTION tenure_lease_is_sound(state text, term_ms bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN state IN ('offered', 'active', 'released', 'completed', 'expired', 'revoked') AND term_ms > 0;
END $$;
ALTER TABLE leases
    DROP CONSTRAINT leases_state_check,
    DROP CONSTRAINT leases_term_ms_check,
    ADD CONSTRAINT leases_sound CHECK (tenure_lease_is_sound(state, term_ms)) NOT VALID;

CREATE FUNCTION tenure_receipt_is_sound(phase text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN phase IN ('accepted', 'progress', 'complete', 'escalate');
END $$;
ALTER TABLE receipts
    DROP CONSTRAINT receipts_phase_check,
    ADD CONSTRAINT receipts_sound CHECK (tenure_receipt_is_sound(phase)) NOT VALID;
