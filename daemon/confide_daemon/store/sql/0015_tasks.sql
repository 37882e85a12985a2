-- Tasks for the night: orders that devices signed, the moments at which they are due, and what became of each (docs/tasks.md).
-- Money is whole millionths of a dollar. What of an order stands in columns is read from it once, when it comes.

CREATE TABLE task (
    id          TEXT    PRIMARY KEY,                -- 16 hex digits, by its device
    project     TEXT    NOT NULL,
    recipe      TEXT    NOT NULL,
    repo        TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    ordered     BLOB    NOT NULL,                   -- the order, byte for byte as it was signed
    signature   BLOB    NOT NULL,
    signer      TEXT    NOT NULL,                   -- a device's key, hex
    approvals   TEXT    NOT NULL DEFAULT '[]',      -- JSON [[key, signature], ...] in hex
    state       TEXT    NOT NULL,                   -- proposed, active, paused, done, cancelled
    why         TEXT    NOT NULL DEFAULT '',
    planned_to  INTEGER NOT NULL,                   -- up to here its slots were made; seconds since 1970
    fresh_since REAL    NOT NULL,                   -- failures from before do not count any more
    created_at  REAL    NOT NULL
) WITHOUT ROWID;
CREATE INDEX task_in_state ON task (state, priority DESC);

CREATE TABLE slot (
    task        TEXT    NOT NULL REFERENCES task (id),
    at          INTEGER NOT NULL,                   -- when it is due; seconds since 1970
    state       TEXT    NOT NULL DEFAULT 'ready',   -- leased, running; succeeded, failed, cancelled, lost, missed, skipped
    attempt     INTEGER NOT NULL DEFAULT 1,
    fence       INTEGER NOT NULL DEFAULT 0,
    next_try_at REAL    NOT NULL,
    runner      TEXT,                               -- a device's key, hex
    lease_until REAL,
    is_repeatable INTEGER NOT NULL DEFAULT 0,
    to_cancel   TEXT,                               -- why it is to be killed
    reserved    INTEGER NOT NULL DEFAULT 0,
    microusd    INTEGER NOT NULL DEFAULT 0,
    tokens_in   INTEGER NOT NULL DEFAULT 0,
    tokens_out  INTEGER NOT NULL DEFAULT 0,
    duration_ms INTEGER NOT NULL DEFAULT 0,
    started_at  REAL,
    ended_at    REAL,
    reason      TEXT    NOT NULL DEFAULT '',
    note        TEXT,                               -- the path of its result
    commit_id   TEXT    NOT NULL DEFAULT '',
    is_checked  INTEGER,                            -- NULL: the recipe has no check
    seen_at     REAL,                               -- a session was told that it has ended
    PRIMARY KEY (task, at)
) WITHOUT ROWID;
CREATE INDEX slot_due ON slot (state, at);
CREATE INDEX slot_of_task ON slot (task, state, at, next_try_at);
CREATE INDEX slot_ended ON slot (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX slot_ended_of_task ON slot (task, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE task_spend (
    month       TEXT    NOT NULL,                   -- 2026-11, in UTC
    runner      TEXT    NOT NULL,
    microusd    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    PRIMARY KEY (month, runner)
) WITHOUT ROWID;

-- What runners have said of themselves, so that who adds a task hears whether anybody could do it.
CREATE TABLE task_runner (
    key         TEXT    PRIMARY KEY,                -- hex
    name        TEXT    NOT NULL,
    recipes     TEXT    NOT NULL,                   -- JSON {name: needs approval}
    seen_at     REAL    NOT NULL
) WITHOUT ROWID;

-- Sealed by the runner: the daemon cannot read them (PROTOCOL.md 10.3).
CREATE TABLE task_log (
    task        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    part        INTEGER NOT NULL,
    record      BLOB    NOT NULL,
    stored_at   REAL    NOT NULL,
    PRIMARY KEY (task, at, part)
) WITHOUT ROWID;
CREATE INDEX task_log_age ON task_log (stored_at);

-- What was found in the memory last night, for the morning: one report, in place of the last one.
CREATE TABLE night_findings (
    only        INTEGER PRIMARY KEY CHECK (only = 1),
    at          REAL    NOT NULL,
    findings    TEXT    NOT NULL                    -- JSON
);
