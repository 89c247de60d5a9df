"""Chrome JSON traces."""
