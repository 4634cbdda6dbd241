"""What the pages read: each read is a call of one SQL function, mostly of stepwell/sql/functions/dashboard.

Each of them has a bound, in rows or in time, and returns one JSON value. Values of jobs, such as args and results, are
text in it: Python decodes them apart, so that one that cannot be decoded does not hide the page.
"""
