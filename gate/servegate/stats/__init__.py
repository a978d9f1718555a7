"""The statistics of the gate: pure functions of numbers, with no clock and no input or output.

| module | question it answers |
| --- | --- |
| `percentiles` | what is the p95, if there are enough samples for one |
| `launches` | which samples are valid, and which of them count |
| `signedrank` | where does the shift of paired samples lie, exactly for small n |
| `interval` | how much of the noise is the blocks', and how much the launches' |
| `sequential` | how sure must one look be when there are several looks and several rows |
| `paired` | has head changed against base: regressed, pass, improved or inconclusive |
| `unpaired` | the same of two runs that were stored, where the luck of each is a guess |
| `aa` | how large a change does this machine show when nothing changed |
| `diagnose` | what kind of noise is this: contention, two modes, drift, launches that disagree |
| `distributions` | has an engine that cannot repeat itself changed what it answers |
| `runs` | the same, where what one process answers is of one piece |
| `ranksum` | where does the shift of two independent rows lie, exactly for small n |
| `changepoint` | when, over many commits, did a metric move |

Nothing is imported here, so that `import servegate.stats` costs nothing: import the module you need.
"""
