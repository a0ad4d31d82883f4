"""Makes worlds of rendered images with verified multi-hop queries."""
