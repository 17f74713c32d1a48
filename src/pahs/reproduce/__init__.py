"""The paper again: its networks trained side by side, its tables, figures and claims set beside what came out.

plan      arms (networks to train), claims (differences between arms), scales (how large a training)
run       arm by arm and seed by seed: train, restore held-out clips, keep the scores
verdicts  scores -> differences with intervals -> a verdict for each claim
report    verdicts, tables, plots and pictures as Markdown and one HTML page
"""
