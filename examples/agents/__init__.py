"""Three agents that work together: a greeter, a poet, and an assistant for a git repository.

None of them needs a network or a model; each takes a function where a model would be asked. What
they have in common is in `colleague`; `../agents_example.py` lets them work.
"""
