-- Tools of MCP servers that were approved. `row` has a fingerprint of each; nothing in it is secret.

CREATE TABLE mcp_approvals (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    row TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
