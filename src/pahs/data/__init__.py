"""Training and test data: dataset layouts, crops, synthesised blur."""
