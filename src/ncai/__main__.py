"""`python -m ncai`: the command line."""

from ncai.cli.app import main

if __name__ == "__main__":
    main()
