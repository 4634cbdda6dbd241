def fail() -> None:
    raise LookupError("no such [setting]")


fail()
