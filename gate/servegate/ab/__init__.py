"""Paired arms: base and head measured in turn on this machine, each in processes of its own.

| module | idea |
| --- | --- |
| `schedule` | who runs next, and how a budget is spread over launches and blocks: integers, no process |
| `runner` | the loop: start the arms, warm them up, run the blocks, stop when decided or when time is up |
| `record` | what was measured, as it is saved |
| `series` | record -> paired log-ratios of a metric |
| `judging` | record -> verdict, pure |
| `lengths` | the same at matched completion length |
| `cost` | what tokens cost at matched completion length |
| `worker`, `process`, `protocol` | the process of an arm, the handle on it, the lines between them |
| `load` | what else the machine did during a block |
| `worktree` | the base commit's files in a folder that never outlives the run |
| `session` | all of it, from a suite and a reference to a verdict |
"""
