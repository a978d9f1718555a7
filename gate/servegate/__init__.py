"""servegate: a regression gate for LLM inference.

PYTEST_DONT_REWRITE: there are no assertions in it, and whoever imported it first would be warned.
"""

__version__ = "0.1.0"
