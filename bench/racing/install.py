"""Builds what races: the server, our host, Java's host. Installs what that needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


class Missing(Exception):
    """Something that this program cannot install by itself."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*command, folder=ROOT):
    # What tools print is talk, and stdout is for the table.
    code = subprocess.call([str(word) for word in command], cwd=folder, stdout=sys.stderr)
    if code != 0:
        raise Missing(f"{command[0]} ended with exit code {code}: {' '.join(str(word) for word in command)}")


def apt(*packages):
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if not shutil.which("apt-get"):
        raise Missing(f"install {', '.join(packages)}, then run this again: there is no apt-get here")
    run(*sudo, "apt-get", "update", "-q")
    run(*sudo, "apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)


def programs():
    """Builds everything; returns the paths of the command, of our host and of what Java needs as its class path."""
    if not shutil.which("cargo"):
        raise Missing("cargo is missing: install the newest stable Rust with rustup (https://rustup.rs), then run this again")
    if not shutil.which("cc"):
        apt("gcc", "libc6-dev")
    if not shutil.which("java") or not shutil.which("mvn"):
        apt("default-jdk-headless", "maven")
    say("building the server and our host")
    run("cargo", "build", "--release", "--locked", "--quiet", "-p", "changefeed-cli", "-p", "changefeed-bench",
        "--bin", "changefeed", "--bin", "race-host", "--features", "changefeed-bench/cosmos")
    say("building Java's host")
    java = BUILT / "race" / "java"
    run("mvn", "--quiet", "--batch-mode", "--no-transfer-progress", f"-Dmaven.repo.local={BUILT / 'race' / 'm2'}",
        f"-Dbuilt={java}", "--file", ROOT / "bench" / "java" / "pom.xml", "package")
    return {
        "changefeed": BUILT / "release" / "changefeed",
        "host": BUILT / "release" / "race-host",
        "classes": f"{java / 'race-host.jar'}:{java / 'lib'}/*",
    }
