-- One row a run of a daemon.
CREATE TABLE node (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address text        NOT NULL,                    -- how other nodes reach it; '' while none can
    version text        NOT NULL,
    seen_at timestamptz NOT NULL
);

CREATE TABLE log (
    id      text   PRIMARY KEY,                      -- a space's id
    head    bigint NOT NULL DEFAULT 0,               -- number of the last entry
    lease   bigint NOT NULL DEFAULT 0,
    holder  bigint,                                  -- a node; NULL: nobody
    base    bigint NOT NULL DEFAULT 0,               -- last entry in the snapshot
    tag     bytea,                                   -- of that entry
    snapshot bigint,                                 -- which parts are it; NULL: there is none
    schema  int    NOT NULL DEFAULT 0,               -- newest migration of what is in it
    custody jsonb                                    -- who keeps the key of the database
) WITH (fillfactor = 50);

CREATE TABLE entry (
    log    text   NOT NULL,
    number bigint NOT NULL,
    lease  bigint NOT NULL,
    schema int    NOT NULL,
    body   bytea  NOT NULL,
    PRIMARY KEY (log, number)
);
ALTER TABLE entry ALTER body SET STORAGE EXTERNAL;

-- Of a snapshot; part 0 is what the others must be.
CREATE TABLE part (
    log      text   NOT NULL,
    snapshot bigint NOT NULL,                        -- random, so that one that is interrupted is in nobody's way
    part     int    NOT NULL,
    body     bytea  NOT NULL,
    PRIMARY KEY (log, snapshot, part)
);
ALTER TABLE part ALTER body SET STORAGE EXTERNAL;
