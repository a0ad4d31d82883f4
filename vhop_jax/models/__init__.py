"""Holds the backbone: decoder, vision towers, embedder, router."""
