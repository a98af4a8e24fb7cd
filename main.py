"""`python main.py` is the same program as `evewatch`."""

from console.cli import main

if __name__ == "__main__":
    main()
