-- When a gate last answered as a gate does, and what went wrong since (empty: nothing): for who looks from elsewhere.
ALTER TABLE gates ADD COLUMN heard_at_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE gates ADD COLUMN error TEXT NOT NULL DEFAULT '';

-- A parked receipt that is to be sent again has its place in the ledger here, and so its place in the queue.
ALTER TABLE gate_receipts ADD COLUMN resend_seq BIGINT;
CREATE INDEX gate_receipts_resend ON gate_receipts (project_id, gate, resend_seq) WHERE resend_seq IS NOT NULL;
-- The newest parked ones are read without sorting all.
DROP INDEX gate_receipts_parked;
CREATE INDEX gate_receipts_parked ON gate_receipts (project_id, gate, at_ms, receipt_id)
    WHERE state = 'parked' AND resend_seq IS NULL;
