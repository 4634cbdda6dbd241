"""Stepwell in the libraries and frameworks of others: one module or folder for each, which imports no other.

A module is loaded only by the program that names it, and says which extra to install if a library is missing. Nothing
else in Stepwell imports this room, except that `stepwell worker --metrics-port` loads `prometheus`.
"""
