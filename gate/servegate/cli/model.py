"""`model fetch` and `model list`."""

from __future__ import annotations

import click

from servegate.cli.output import emit


@click.group()
def model() -> None:
    """Fetch or list the models that have a name."""


@model.command()
@click.argument("name")
def fetch(name: str) -> int:
    """Download model NAME, verify its digest, keep it in the cache, print its path."""
    from servegate.targets import embedded

    emit(f"{embedded.fetch_model(name)}\n")
    return 0


@model.command("list")
def list_models() -> int:
    """List the known models and where they lie."""
    from servegate.targets import embedded

    for name, path in embedded.known_models().items():
        emit(f"{name}  {path or 'not fetched'}\n")
    return 0
