-- The token of the last claim of each client that finished what it took, so that the client knows whether that was stored
-- when the commit was not answered. It is of use until the claim's lease would be over.
CREATE TABLE [finishing] (
    client BLOB PRIMARY KEY,
    token  BLOB NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
