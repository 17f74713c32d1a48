"""Plots, made with matplotlib."""
