import there_is_no_such_module  # pyright: ignore  # noqa: F401
