"""Who answers the hooks of this machine: one session or `confide sync --watch`, for as long as it has the seat."""
