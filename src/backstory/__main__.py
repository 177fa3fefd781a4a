"""`python -m backstory`: the command line."""

from backstory.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
