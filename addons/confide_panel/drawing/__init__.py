"""Plots as SVG. Shapes have classes of `panel.css`, for both colour schemes; each plot has a table
of its values beside it.
"""
