"""Chains and machines: work whose place is kept on the job itself."""
