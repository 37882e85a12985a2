"""What ties a note to an action of an agent: a file that it names, a command, or an error that it quotes."""
