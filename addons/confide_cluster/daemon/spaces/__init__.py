"""Which spaces this node holds, and what its data folder shares with the others."""
