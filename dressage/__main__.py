"""`python -m dressage` is the command line."""

from dressage.cli.main import main

if __name__ == "__main__":
    main()
