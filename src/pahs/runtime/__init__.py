"""Where a network runs, in which precision, with which weights."""
