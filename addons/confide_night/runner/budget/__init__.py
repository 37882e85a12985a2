"""What a run may ask of a model, and what that costs: a process of its own between the sandbox and the model's API, which has the key."""
