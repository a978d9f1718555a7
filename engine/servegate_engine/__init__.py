"""The embedded engine: a minimal paged-KV engine for decoder-only language models."""
