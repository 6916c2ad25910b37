"""`python -m autoscout`: the command, where its folder is not on the path or several Pythons have one."""

from autoscout.cli import program

if __name__ == "__main__":
    program()
