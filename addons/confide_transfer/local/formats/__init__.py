"""File formats that readers of several systems share."""
