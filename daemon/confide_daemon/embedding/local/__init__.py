"""Models that run in this process: ONNX Runtime, what their weights cost, and when they are dropped."""
