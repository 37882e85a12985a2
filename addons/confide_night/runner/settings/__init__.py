"""The runner's configuration: its recipes and limits, and the prices of models."""
