"""The parts of a search (`confide_daemon.search` puts them together): what is looked for, how pieces are ranked, what is shown and why."""
