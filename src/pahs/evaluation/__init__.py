"""Scores of networks on datasets, and the reports on them."""
