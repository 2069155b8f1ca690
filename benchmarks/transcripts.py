"""How fast, and in how much memory, a whole folder of transcripts is taken in: killed half-way, resumed, and again.

python benchmarks/transcripts.py [--files 10000] [--bytes 100000] [--folder /tmp] [--backend postgresql://…]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import turnlane
from turnlane.testing.transcripts import make_projects
from turnlane.transcripts import open_transcripts
from turnlane.transcripts.views import Wanted

IMPORT = [sys.executable, "-c", "from turnlane.cli.main import main; main()", "transcripts", "import", "--json"]
SEARCHES = {
    "a rare word": "word19997",
    "a frequent word": "word1",
    "a phrase": '"word1 word2 word3"',
    "a beginning": "word199*",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=100_000, help="of a file, on average")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--backend", default="sqlite:///turnlane.db")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="turnlane-transcripts-", dir=given.folder))
    try:
        measure(folder, given.files, given.bytes, given.backend)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, files: int, size: int, backend: str) -> None:
    made = make_projects(folder / "projects", files=files, bytes_each=size)
    show("written", f"{files:,} files, {made / 1e6:,.0f} MB")
    tenth = make_projects(folder / "tenth", files=files // 10, bytes_each=size, seed=2)
    small = imported(folder, "tenth", "sqlite:///tenth.db")
    show("a tenth of it", f"{tenth / 1e6 / small.seconds:.1f} MB/s, {small.peak_mb:,.0f} MB of memory at most")

    killed = imported(folder, "projects", backend, kill_at=files // 2)
    rest = imported(folder, "projects", backend)
    seconds = killed.seconds + rest.seconds
    show("all, killed half-way", f"{files / seconds:,.0f} files/s, {made / 1e6 / seconds:.1f} MB/s, {seconds:.0f} s")
    show("memory at most", f"{killed.peak_mb:,.0f} MB and {rest.peak_mb:,.0f} MB")
    again = imported(folder, "projects", backend)
    assert again.new["entries"] == again.new["counts"]["lines"] == 0, "a second import changed something"
    show("a second time", f"{again.seconds:.1f} s, nothing new")
    file = folder / "turnlane.transcripts.db"
    if file.exists():
        show("database", f"{file.stat().st_size / 1e6:,.0f} MB, {file.stat().st_size / made:.0%} of the files")
    os.chdir(folder)
    asyncio.run(look(backend))


class Run:
    def __init__(self, seconds: float, peak_mb: float, new: dict[str, object]) -> None:
        self.seconds = seconds
        self.peak_mb = peak_mb
        self.new: dict = new


def imported(folder: Path, what: str, backend: str, kill_at: int | None = None) -> Run:
    environment = {**os.environ, "PYTHONPATH": str(Path(turnlane.__file__).parents[1])}
    before = time.perf_counter()
    command = [*IMPORT, what, "--backend", backend]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if kill_at is not None and int(line.split()[0].replace(",", "")) >= kill_at:
            process.send_signal(signal.SIGKILL)
    answer = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == (0 if kill_at is None else -signal.SIGKILL)
    return Run(time.perf_counter() - before, used.ru_maxrss / 1024, json.loads(answer)["new"] if answer else {})


async def look(backend: str) -> None:
    store = open_transcripts(backend)
    sessions = await store.sessions(limit=10**9)
    show("stored", f"{len(sessions):,} sessions, {sum(each.entries for each in sessions):,} entries")
    for name, words in SEARCHES.items():
        before = time.perf_counter()
        found = await store.search(Wanted(words))
        show(f"search: {name}", f"{(time.perf_counter() - before) * 1e3:.0f} ms, {len(found)} shown")
    await store.close()


def show(what: str, figures: str) -> None:
    print(f"{what:24} {figures}", flush=True)


if __name__ == "__main__":
    main()
