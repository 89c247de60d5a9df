"""Random worlds: runs drawn from wide ranges, simulated, analysed and scored against their truth."""
