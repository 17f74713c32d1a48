"""Operations with kernels for a GPU: fused convolutions, CUDA graphs, streams. Networks import `ops` alone."""
