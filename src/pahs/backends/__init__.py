"""Networks as graphs, run by ONNX Runtime or OpenVINO through the same engine."""
