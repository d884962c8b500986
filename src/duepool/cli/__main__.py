"""``python -m duepool.cli``: the `duepool` command."""

from duepool.cli import main

if __name__ == "__main__":
    main(prog_name="duepool")
