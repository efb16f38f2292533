"""Measurements, as ratios in one run; ``make bench`` writes them to ``.perdure/bench.json``."""
