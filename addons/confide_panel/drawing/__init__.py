"""Plots as SVG, drawn here: shapes with classes of `panel.css`, for both colour schemes. Each has a table of the same beside it."""
