"""On the pull request: a record from another job -> a verdict that nobody but the base commit decides.

| module | idea |
| --- | --- |
| `event` | what the runner says of this run: pure, never a guess |
| `client` | the few requests to GitHub's API, bounded in time, with one kind of failure |
| `binding` | which pull request a run belongs to: from the event and the API, never from the artifact |
| `artifact` | bytes that anybody may have written -> a record, or a refusal |
| `trusted` | record + suite and baselines of the base -> verdict |
| `marker`, `comment` | one comment a gate: found by marker and author, never overwritten by an older run |
| `status` | the commit status: pending first, finished in every case |
| `annotations`, `runner_files` | what needs no token: lines in the log, the step summary, outputs |
| `post` | all of it in order; what cannot be posted is said, and changes no verdict |
"""
