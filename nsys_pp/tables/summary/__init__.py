"""Tables of a summary: time by activity, kernel, copy, call and cause of idle time."""
