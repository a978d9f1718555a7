"""Decoder-only transformers, written on ``backends.base.Ops``."""
