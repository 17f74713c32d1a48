"""`pahs export`: networks as ONNX or OpenVINO graphs, with what a program needs to run them."""
