"""What a person can do: each act is one call of the app or of a SQL function, and ends on the page it came from.

`routes` says which right an act needs. Its query names it by `act=`, so that the audit records it in the same
transaction. Acts on all jobs that match a filter are in `bulk`, which starts a bulk operation; workers carry it out.
"""
