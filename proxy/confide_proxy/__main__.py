"""`python -m confide_proxy` is `confide`."""

from confide_proxy.entry import main

if __name__ == "__main__":
    main()
