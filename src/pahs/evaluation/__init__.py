"""Scores, and the reports that are made of them."""
