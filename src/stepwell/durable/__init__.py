"""Durable functions: the context, the journal, steps, waits, children, branches and compensation."""
