-- Callers that come by HTTP with a token (docs/http-server.md): `public_key` is then the SHA-256 of the token, which no handshake can prove, and
-- this says what their word counts for. NULL: a machine, with a key of its own.
ALTER TABLE callers ADD COLUMN gateway TEXT CHECK (gateway IN ('trusted', 'untrusted'));
