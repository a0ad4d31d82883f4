"""Feeds the trainers: endless rendered pairs, and worlds from disk."""
