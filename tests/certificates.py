"""Certificates for tests, of nobody but themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def certificate_in(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """For this machine, and its key; who trusts it names it as the authority."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    try:
        subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return certificate, key
