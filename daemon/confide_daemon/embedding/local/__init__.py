"""Embedding models that run in the daemon's process: the packaged one, and ONNX models."""
