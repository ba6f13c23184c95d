-- What the door for E2B's clients knows of a sandbox besides its session, its tokens included. The template is for people who look into
-- the file. A sandbox is not tied to the row of its session: what is left of one is removed by its door.

CREATE TABLE sandboxes (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    template TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
