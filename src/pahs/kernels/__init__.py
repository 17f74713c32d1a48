"""What runs on a GPU: fused operations, CUDA graphs, streams. Networks know `ops` alone."""
