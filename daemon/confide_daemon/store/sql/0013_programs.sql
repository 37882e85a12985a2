-- Which version of the program has made a step; NULL: one before this. Every later version can read it, to say who wrote what it does not know.

ALTER TABLE migration ADD COLUMN program TEXT;
