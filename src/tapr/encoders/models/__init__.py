"""The encoders that can be asked for by name, one file each. They import what is heavy only when one is loaded."""
