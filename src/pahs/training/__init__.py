"""From a recipe to weights: the parts that `pahs.train` puts together."""
