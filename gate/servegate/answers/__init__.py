"""Answers of a target that does not repeat itself, held against its own variation.

| module | question it answers |
| --- | --- |
| `settle` | which rows are judged so, and what becomes of the others |
| `tested` | which answers of a record does a metric speak of, and how far may they move |
| `evidence` | what do the two tests say together |
| `words` | how is that told |
"""
