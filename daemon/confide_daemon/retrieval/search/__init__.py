"""The parts of a search (`engine` puts them together): what is looked for, how pieces are ranked, what is shown and why."""
