"""Memory use of models: loading on demand and unloading."""
