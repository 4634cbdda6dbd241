"""The pages, a module each: read one function of `reads`, and show it."""
