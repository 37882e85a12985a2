"""The commands `confide tasks` and `confide runner`."""
