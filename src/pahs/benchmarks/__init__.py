"""What `pahs.bench` measures with: stages, the literal reference, scaling, files."""
