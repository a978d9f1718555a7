"""How a verdict is told: terminal, Markdown, JSON. Pure functions of a Verdict."""
