"""`python -m stepwell`: the same as the command `stepwell`."""

from stepwell.cli import main

# Guarded, because processes of tasks with process=True import this module again.
if __name__ == "__main__":
    main()
