-- By which, and by a code or a refresh token itself, the tokens were made that it was used for: whoever asks again because the answer was lost
-- gets the same (`by_http/sign_in.py`). Gone once one of these was used.
ALTER TABLE codes ADD COLUMN salt BLOB CHECK (length(salt) = 32);
ALTER TABLE tokens ADD COLUMN salt BLOB CHECK (length(salt) = 32);
