-- A token can be bound to sessions. A program that does not know of that would let its owner use all of its tenant, so this step keeps
-- such a program away. The column is for people who look into the file: it shows what `row` says.

ALTER TABLE tokens ADD COLUMN session TEXT
    GENERATED ALWAYS AS (CASE WHEN json_valid(row) THEN json_extract(row, '$.session') END) VIRTUAL;
