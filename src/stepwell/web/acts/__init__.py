"""What a person can do: each act is one call of the app or of a SQL function, and ends on the page it came from."""
