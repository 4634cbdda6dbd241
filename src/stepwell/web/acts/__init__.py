"""What a person can do: each act is one call of the app, and ends on the page it came from."""
