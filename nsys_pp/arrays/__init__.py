"""Array algorithms that several stages share: columns, segments, ancestors, distributions, threads."""
