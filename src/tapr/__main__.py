"""`python -m tapr` is the command tapr."""

from tapr.cli.main import main

if __name__ == "__main__":
    main()
