"""Claim jobs: where to look, how many, for which slots."""
