"""Chains and machines: tasks whose work is a sequence of steps, with the current position kept on the job itself.

`chain` declares functions in a fixed order, `machine` declares states that name the next one. Both are a `Flow`, which
`flow` defines: find a step, call it, and turn its return value into the next step and its input. Nothing is replayed
here: a finished step never runs again, so these tasks have no rule of determinism. `annotations` checks that steps fit
each other when a chain is declared, and `chain_types` lets type checkers do the same.

Running the steps is in `execution/flow_executor`; a step with `transaction=True` or `process=True` goes through
`execution/step_task`.
"""
