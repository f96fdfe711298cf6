"""Makes the wheel of this folder (PEP 517), with nothing but Python's own library."""

import base64
import hashlib
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent


def _project(key):
    return re.search(rf'^{key} = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)[1]


NAME, VERSION = _project("name"), _project("version")
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: {_project("description")}
Requires-Python: {_project("requires-python")}
License: Apache-2.0
Description-Content-Type: text/markdown

""" + (ROOT / "README.md").read_text(encoding="utf-8")
WHEEL = "Wheel-Version: 1.0\nGenerator: tailcast\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _sources():
    """Files of the package, as (path in the package, bytes)."""
    for path in sorted((ROOT / NAME).iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            yield f"{NAME}/{path.name}", path.read_bytes()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = f"{NAME}-{VERSION}.dist-info"
    files = [*_sources(), (f"{info}/METADATA", METADATA.encode()), (f"{info}/WHEEL", WHEEL.encode())]
    record = ""
    for path, content in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    record += f"{info}/RECORD,,\n"
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in [*files, (f"{info}/RECORD", record.encode())]:
            archive.writestr(path, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    stem = f"{NAME}-{VERSION}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{stem}.tar.gz", "w:gz") as archive:
        for path in ("pyproject.toml", "build_backend.py", "README.md", *(path for path, _ in _sources())):
            archive.add(ROOT / path, f"{stem}/{path}")
    return f"{stem}.tar.gz"
