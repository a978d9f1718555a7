"""Prompt templates: Jinja2 in its sandbox, where everything must be defined and nothing is random."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from servegate.errors import UsageError
from servegate.suite.document import is_file, read_text

if TYPE_CHECKING:
    import jinja2

MAX_BYTES: Final = 2**20


class PromptTemplate:
    """One template file, compiled. May include and import files beneath ``directory``, named from there."""

    def __init__(self, path: Path, directory: Path) -> None:
        """UsageError where the file cannot be read or is not a template."""
        import jinja2

        self._path = path
        source = read_text(path, MAX_BYTES)
        environment = _environment(directory)
        # The suite names this file itself, so it alone may lie anywhere.
        with self._explained(prompt=None):
            code = environment.compile(source, filename=str(path))
        self._template = jinja2.Template.from_code(environment, code, environment.globals)

    def render(self, prompt: str, text: str, variables: Mapping[str, object]) -> str:
        """What is sent for ``prompt``. One newline at the end of the file is not part of it."""
        with self._explained(prompt):
            return self._template.render({**variables, "text": text})

    @contextlib.contextmanager
    def _explained(self, prompt: str | None) -> Iterator[None]:
        """A template is a program that a user wrote: whatever it raises is that user's to read."""
        import jinja2

        concerning = f"prompt {prompt!r}: " if prompt else ""
        try:
            yield
        except UsageError:
            raise
        except jinja2.TemplateSyntaxError as error:
            where = error.filename or self._path
            raise UsageError(f"{where}:{error.lineno}: {concerning}{error.message}") from None
        except jinja2.TemplateNotFound as error:
            message = f"cannot include {error.name!r}: no such file beneath the suite's directory"
            raise UsageError(f"{self._path}: {concerning}{message}") from None
        except jinja2.UndefinedError as error:
            hint = "give it in the prompt's variables or in the suite's prompts.variables"
            raise UsageError(f"{self._place(error)}: {concerning}{error.message}; {hint}") from None
        except Exception as error:
            message = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UsageError(f"{self._place(error)}: {concerning}{message}") from None

    def _place(self, error: BaseException) -> str:
        """File and line of the template; Jinja2 puts them into the traceback."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self._path)]
        return f"{self._path}:{frames[-1].lineno}" if frames else str(self._path)


def _environment(directory: Path) -> jinja2.Environment:
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    root = directory.resolve()

    def load(name: str) -> tuple[str, str, Callable[[], bool]] | None:
        try:
            # Resolved first: neither `..` nor a link leads out of the suite's directory.
            path = (root / name).resolve()
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            return None
        if not path.is_relative_to(root) or not is_file(path):
            return None
        return read_text(path, MAX_BYTES), str(path), lambda: True

    environment = SandboxedEnvironment(
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        # A prompt is plain text that a model reads: `&lt;` in place of `<` would be another prompt.
        autoescape=False,
    )
    # The same suite must send the same bytes on every run.
    del environment.globals["lipsum"]
    del environment.filters["random"]
    return environment
