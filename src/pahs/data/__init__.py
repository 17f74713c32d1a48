"""Where training and test pictures come from: dataset layouts, crops, synthesis."""
