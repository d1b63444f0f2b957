"""`hermes-plugins ui`: a local web page to see, ask and correct what an agent remembers.

home           opens the stores of a home, and masks secrets
notes, conversations, health    what there is, as frozen dataclasses that a terminal could show
actions        what a person changes, through the code that the commands use
jobs           what takes long: in the background, one result per job
security, pages, app    the page: who may use it, what it shows, and its server
command        the command
"""
