-- Directories of ours that outlive the sandboxes that have them, their tokens included. The name is for people who look into the file.

CREATE TABLE volumes (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
