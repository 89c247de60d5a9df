"""Tables as files and on a terminal."""
