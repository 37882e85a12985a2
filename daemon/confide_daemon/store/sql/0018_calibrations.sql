-- What the cosines of a generation's model mean (docs/search.md): that of unrelated and of related texts, then the vectors of the texts by
-- which a question is judged, all as 32-bit floats. NULL: not measured, or a model whose values are packaged.

ALTER TABLE generation ADD COLUMN calibration BLOB;
