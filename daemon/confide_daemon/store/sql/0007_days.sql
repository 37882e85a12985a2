-- Earlier versions took the 31st of February in a file name for a day, which no search could reckon with.
UPDATE document SET day = date(updated_at, 'unixepoch') WHERE date(day) IS NOT day;
