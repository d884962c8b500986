"""What ``tools/dev.py`` is made of: checks of the machine, the environment, the tasks."""
