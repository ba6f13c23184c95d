-- Saved boxes of E2B's clients: snapshots and built templates. Their archives are files beside the store. The name is for people who look
-- into the file.

CREATE TABLE templates (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
