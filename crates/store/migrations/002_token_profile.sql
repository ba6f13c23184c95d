-- A token can be bound to a profile. A program that does not know of that would let its owner do more, so this step keeps such a
-- program away. The column is for people who look into the file: it shows what `row` says.

ALTER TABLE tokens ADD COLUMN profile TEXT
    GENERATED ALWAYS AS (CASE WHEN json_valid(row) THEN json_extract(row, '$.profile') END) VIRTUAL;
