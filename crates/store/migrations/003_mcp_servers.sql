-- Definitions of MCP servers that callers made. `row` holds them with their secrets; the state is for people who look into the file.

CREATE TABLE mcp_servers (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- A token can have lists of the servers and tools that it opens. Who does not know of them would let its owner use all; this step keeps
-- such a program away. The column is for people who look into the file: it shows what `row` says.

ALTER TABLE tokens ADD COLUMN mcp TEXT
    GENERATED ALWAYS AS (CASE WHEN json_valid(row) THEN json_extract(row, '$.mcp') END) VIRTUAL;
