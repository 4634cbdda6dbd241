"""`stepwell top`: the fleet in a terminal.

`view` reads what is shown, with the functions of the dashboard; `tables` makes rows and columns of it. `once` prints
them. `screen` shows them with Textual and reads again every other second; `dialogs` ask, help and show one job; `acts`
are calls of an app. Only `screen` and `dialogs` import Textual, which is an extra: `--once` works without it.
"""
