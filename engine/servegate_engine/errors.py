"""What can go wrong, by who has to act on it."""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error this package raises on purpose. The message is one line, fit for a user."""


class ConfigError(EngineError):
    """An engine or model setting that cannot work: names the field, the value and the allowed range."""


class ModelFileError(EngineError):
    """A model or tokenizer file is missing, broken, hostile or of an unsupported kind: names the file."""


class RequestError(EngineError):
    """This one request cannot be served; the engine and every other request go on."""


class QueueFullError(RequestError):
    """The admission queue is at its bound and sheds this request."""


class InvariantError(EngineError):
    """The engine's own bookkeeping is broken: a fault in this package, with a report of what is wrong."""


class StalledError(InvariantError):
    """Requests exist and a step neither ran nor ended any of them; carries a report of every request."""
