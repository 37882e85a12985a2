"""`confide mcp`: what an agent's client speaks to, and how its calls reach the daemon or an answer from here."""
