"""Multi-step embedding retrieval over worlds of rendered images."""

__version__ = '0.1.0'
