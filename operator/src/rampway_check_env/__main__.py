"""Runs the check: `python -m rampway_check_env`. It knows nothing that `cli.py` does not know."""

from rampway_check_env.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
