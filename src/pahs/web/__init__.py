"""The web page and HTTP API of `pahs serve`: a queue on disk, a server, and workers in processes of their own."""
