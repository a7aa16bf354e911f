"""What a user starts: each module is one command of `automedeval`, and the recipe of the same work calls the same `main`.

A command parses, calls one room and prints; a computation belongs into the room.
"""
