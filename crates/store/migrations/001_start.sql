-- What is looked for has a column; the thing itself is JSON in `row`, so that a new field needs no migration.

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE TABLE execs (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, session, id),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE processes (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, session, id),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    row TEXT NOT NULL
) STRICT;
