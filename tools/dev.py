"""The project's tasks: ``python tools/dev.py demo|test|lint|bench [arguments]``.

Each does all of its own set-up, in ``.venv`` and ``build``, and then its job. Standard library
only. This file is kept to a syntax that any Python reads, so that one which is too old can say
what is needed; the work is in ``devkit``.
"""

import os
import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    sys.stderr.write(
        "dev: this is Python {0}.{1} ({4}), and duepool needs {2}.{3} or newer.\n"
        "     Name a newer one:  make test PYTHON=python3.13\n"
        "     On Windows:        py -3.13 tools\\dev.py test\n".format(
            sys.version_info[0], sys.version_info[1], OLDEST[0], OLDEST[1], sys.executable
        )
    )
    sys.exit(2)

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from devkit.tasks import main

    sys.exit(main(sys.argv[1:]))
