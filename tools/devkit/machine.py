"""Is everything there that a set-up needs? Says what is missing and how to get it."""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

VENV, HEADERS, COMPILER = "venv", "headers", "compiler"
_WHAT = {
    VENV: "the modules venv and ensurepip of this Python",
    HEADERS: "the header Python.h of this Python",
    COMPILER: "a C compiler that works",
}
_PROBE = "#include <Python.h>\n#include <pthread.h>\nint main(void) { return 0; }\n"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def missing() -> list[str]:
    """What a quick look does not find: some of VENV, HEADERS, COMPILER."""
    lacks = []
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        lacks.append(VENV)
    if not (_include() / "Python.h").is_file():
        lacks.append(HEADERS)
    if not _compiler_found():
        lacks.append(COMPILER)
    return lacks


def compiler_fault() -> str | None:
    """What the compiler says of an empty program, if it does not take it (not on Windows)."""
    if os.name == "nt":
        return None
    command = [*_compiler(), "-fsyntax-only", f"-I{_include()}", "-x", "c", "-"]
    try:
        probe = subprocess.run(command, input=_PROBE, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if probe.returncode == 0 else probe.stderr.strip()


def explain(lacks: list[str]) -> str:
    """What is missing, and the remedy for the machine at hand."""
    lines = [f"dev: {sys.executable} (Python {VERSION}) lacks what duepool is built with:"]
    lines += [f"       - {_WHAT[lack]}" for lack in lacks]
    lines += ["     Remedy:"]
    lines += [f"       {remedy}" for remedy in _remedies(lacks)]
    return "\n".join(lines)


def _include() -> Path:
    return Path(sysconfig.get_path("include"))


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def _compiler_found() -> bool:
    if os.name != "nt":
        return shutil.which(_compiler()[0]) is not None
    if shutil.which("cl"):
        return True
    programs = os.environ.get("PROGRAMFILES(X86)") or r"C:\Program Files (x86)"
    finder = Path(programs, "Microsoft Visual Studio", "Installer", "vswhere.exe")
    if not finder.is_file():
        return False
    parts = "Microsoft.VisualStudio.Component.VC.Tools." + (
        "ARM64" if platform.machine() == "ARM64" else "x86.x64"
    )
    query = [str(finder), "-latest", "-products", "*", "-requires", parts]
    found = subprocess.run(
        [*query, "-property", "installationPath"], capture_output=True, text=True, check=False
    )
    return bool(found.stdout.strip())


def _remedies(lacks: list[str]) -> list[str]:
    if os.name == "nt":
        remedies = []
        if VENV in lacks or HEADERS in lacks:
            remedies.append(f"install Python {VERSION} anew with its installer, all features on")
        if COMPILER in lacks:
            remedies.append(
                "install 'Visual Studio Build Tools' with 'Desktop development with C++'"
            )
        return remedies
    if sys.platform == "darwin":
        remedies = []
        if COMPILER in lacks:
            remedies.append("xcode-select --install")
        if VENV in lacks or HEADERS in lacks:
            remedies.append(
                f"install Python {VERSION} from python.org, or: brew install python@{VERSION}"
            )
        return remedies
    return _linux_remedies(lacks, _distribution())


def _linux_remedies(lacks: list[str], family: str) -> list[str]:
    systems_own = sys.base_prefix == "/usr"
    packages = []
    remedies = []
    for lack in lacks:
        if lack == COMPILER:
            packages.append({"debian": "g++", "fedora": "gcc-c++"}.get(family, ""))
        elif systems_own:
            debian = f"python{VERSION}-venv" if lack == VENV else f"python{VERSION}-dev"
            fedora = "python3" if lack == VENV else "python3-devel"
            packages.append({"debian": debian, "fedora": fedora}.get(family, ""))
        else:
            remedies.append(
                f"Python {VERSION} in {sys.base_prefix} is not the system's: "
                "install it anew, complete (with ensurepip and headers)"
            )
    remedies = list(dict.fromkeys(remedies))
    if all(packages):
        install = {"debian": "sudo apt install", "fedora": "sudo dnf install"}
        if packages:
            remedies.append(f"{install[family]} {' '.join(packages)}")
    else:
        remedies.append("install them with your system's package manager")
    return remedies


def _distribution() -> str:
    """``debian``, ``fedora`` or an empty string: which package manager to speak of."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    names = {release["ID"], *release.get("ID_LIKE", "").split()}
    if names & {"debian", "ubuntu"}:
        return "debian"
    return "fedora" if names & {"fedora", "rhel", "centos"} else ""
