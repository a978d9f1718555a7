"""servegate: a regression gate for LLM inference.

PYTEST_DONT_REWRITE: it holds no assertions, and rewriting them would warn who imported it before pytest began.
"""

__version__ = "0.1.0"
