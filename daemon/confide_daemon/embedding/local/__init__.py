"""Models that run in this process: the packaged one, and ONNX models."""
