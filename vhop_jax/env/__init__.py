"""Holds the retrieval environment: what a decision does, and rollouts."""
