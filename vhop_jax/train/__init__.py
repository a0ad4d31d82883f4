"""Trains models: one loop, and one module for each stage."""
