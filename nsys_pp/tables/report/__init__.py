"""Frames behind the plots of a report page: ranks over steps, and the steps whose charts are shown."""
