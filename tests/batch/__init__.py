"""The batch scripts of docs/batch, as users copy them."""
