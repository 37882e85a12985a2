"""The leases of this node on spaces, and the parts of its data folder that all nodes share."""
