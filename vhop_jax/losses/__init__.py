"""Holds the objectives: pure functions of scores and masks."""
