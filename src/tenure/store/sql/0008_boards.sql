-- Boards: where people look and move cards. One board per project.

CREATE TABLE boards (
    project_id      TEXT PRIMARY KEY REFERENCES projects (project_id),
    kind            TEXT NOT NULL,
    url             TEXT NOT NULL,
    -- The board's own id of the project whose cards these are.
    place           TEXT NOT NULL,
    token           TEXT NOT NULL,
    webhook_token   TEXT NOT NULL,
    config          TEXT NOT NULL,
    -- Begins the key of every comment we post, so that two stores on one board do not take each other's for theirs.
    link_id         TEXT NOT NULL,
    -- How far our events were looked through for changes to deliver, and the board's activity for people's acts.
    event_seq       BIGINT NOT NULL,
    feed            TEXT NOT NULL,
    -- Grows with every change of any card's base. What was read from the board before a base changed says nothing of it.
    changes         BIGINT NOT NULL,
    connected_at_ms BIGINT NOT NULL,
    swept_at_ms     BIGINT NOT NULL,
    error           TEXT NOT NULL
);

CREATE TABLE board_cards (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id    TEXT NOT NULL REFERENCES boards (project_id) ON DELETE CASCADE,
    -- NULL after the task was deleted: the card is then to be closed, and is not taken for a new one.
    task_key      INTEGER REFERENCES tasks (key) ON DELETE SET NULL,
    task_id       TEXT NOT NULL,
    -- Empty until the card is made. Boards use ids again; together with the time of its making one names a card.
    card_id       TEXT NOT NULL,
    born          TEXT NOT NULL,
    -- The card as last written or seen (JSON), and the board's count of changes at that time.
    base          TEXT,
    change_no     BIGINT NOT NULL,
    -- The task's version that was last delivered; `dirty` while something may be left to deliver.
    version       INTEGER NOT NULL,
    dirty         INTEGER NOT NULL,
    busy_until_ms BIGINT NOT NULL,
    retry_at_ms   BIGINT NOT NULL,
    attempts      INTEGER NOT NULL,
    parked        INTEGER NOT NULL,
    error         TEXT NOT NULL,
    -- How often in a row the server said that there is no such card.
    gone          INTEGER NOT NULL,
    reversions    INTEGER NOT NULL,
    said_seq      BIGINT NOT NULL
);
CREATE UNIQUE INDEX board_cards_of_task ON board_cards (task_key, project_id) WHERE task_key IS NOT NULL;
CREATE UNIQUE INDEX board_cards_named ON board_cards (project_id, card_id) WHERE card_id <> '';
CREATE INDEX board_cards_dirty ON board_cards (project_id, retry_at_ms) WHERE dirty = 1 AND parked = 0;

-- Comments that are still to be posted. One that the board has is forgotten here.
CREATE TABLE board_comments (
    comment_key TEXT PRIMARY KEY,
    card_key    INTEGER NOT NULL REFERENCES board_cards (key) ON DELETE CASCADE,
    text        TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    parked      INTEGER NOT NULL,
    error       TEXT NOT NULL
);
CREATE INDEX board_comments_of_card ON board_comments (card_key);

-- When an alert was last raised: it is not raised again before its cool-down is over.
CREATE TABLE alerts (
    project_id   TEXT NOT NULL,
    kind         TEXT NOT NULL,
    raised_at_ms BIGINT NOT NULL,
    PRIMARY KEY (project_id, kind)
);

-- Who asked for work and was given none, and when last: the distinct agents that a gridlock keeps waiting.
CREATE TABLE requests (
    project_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (project_id, agent_id)
);
