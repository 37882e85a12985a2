"""Models that run in this process: the packaged one, and what ONNX Runtime opens."""
