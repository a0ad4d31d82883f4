"""Holds galleries: their visual tokens, embeddings and search."""
