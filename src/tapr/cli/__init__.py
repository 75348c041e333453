"""The command line: one file per command. Each reads its options, calls the library and prints."""
