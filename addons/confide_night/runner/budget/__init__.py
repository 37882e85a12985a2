"""The budget gateway of a run: a separate process between the sandbox and the model's API, which
holds the API key, filters requests and counts their cost.
"""
