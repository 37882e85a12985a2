"""The PostgreSQL that `[store]` names: connections to it, and why there are none. The driver is loaded here and nowhere else."""
